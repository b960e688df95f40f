// SPDX-License-Identifier: Apache-2.0
// Small reads, sent by the requesting thread and completed by the waiting thread.
//
// To hand a small read to a lane's thread, and its end back, costs two thread changes, more than
// the read itself. Therefore each thread has a ring; above a number of threads several share one.
// submit() sends there, and help() waits in the kernel for one read that its thread has sent. One
// lane gets the end of every other read and reports it, so no read depends on a thread that waits
// for another read.
//
// This way is only for a read that one request does completely. A read that ends in any other way
// (short, refused, interrupted, failed) goes to its engine's lane and begins again. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/storage/lane.h"
#include "backend/storage/storage.h"
#include "headrace/units.h"

namespace headrace::storage {

// Smaller reads are small. For a device they cost about as much as a read of this size
// (Capabilities::min_efficient).
inline constexpr Bytes kSmall = 64_KiB;

class SmallReads {
 public:
  explicit SmallReads(const StorageOptions& options);
  ~SmallReads();  // Requires: nothing is in flight, no call is running.
  SmallReads(const SmallReads&) = delete;
  SmallReads& operator=(const SmallReads&) = delete;

  // Ends of reads that nobody waits for are announced at `descriptor`; look() must be called then.
  // Before serve() no read is taken. Called once, before any other function.
  void serve(int descriptor) { descriptor_ = descriptor; }

  // Takes a read, which is in flight after the thread's next send(). False: the lane must do it,
  // because
  // - it is not a small read that one request can do,
  // - there is no place for it, or
  // - small reads from before the thread's last send() have not ended.
  bool accept(AcceptedPiece& piece);
  // Sends the accepted reads of this thread. Reports ended ones.
  void send();
  // Backend::help.
  std::size_t help(std::span<const std::byte> to, Nanoseconds most);

  // The functions below are called by the thread of the serving lane. Reports reads that nobody
  // waits for. True: call again soon.
  bool look();
  // Called after look(): counts one more look of the lane for each read in flight, and cancels
  // reads that are too old.
  bool age();
  // Asks the kernel to end cancelled reads. False: all of them have ended.
  bool ask();
  // Whether accepted reads are not yet reported.
  bool busy() const;

 private:
  struct SmallRead;
  struct Ring;
  struct Slot;

  Slot& mine();
  void open(Slot& slot);
  static SmallRead* find(Ring& ring, std::span<const std::byte> to);
  static void collect(Ring& ring);
  static void arrange(Slot& slot);
  static bool settle(Slot& slot, bool if_unsent = false);
  static void take(Slot& slot, SmallRead& read);
  static void free(Slot& slot, SmallRead& read);
  static bool report(SmallRead& read);

  const StorageOptions options_;
  int descriptor_ = -1;  // constant after serve()
  const std::unique_ptr<Slot[]> slots_;
};

}  // namespace headrace::storage
