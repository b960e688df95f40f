// SPDX-License-Identifier: Apache-2.0
// Small reads, sent by the thread that asks and taken by the thread that waits.
//
// Handing a small read to a lane's thread and its end back costs two changes of threads, more than
// the read itself. So each thread has a ring (several share one where there are many): submit()
// sends there, and help() waits in the kernel for one read that the thread has sent. The end of
// every other read is announced to one lane, whose thread reports it: no read depends on a thread
// that waits for another.
//
// This is the short way only: one read in one request that gives all that was wanted. Whatever
// ends otherwise (short, refused, interrupted, failed) goes to the lane of its engine, from the
// beginning. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/storage/lane.h"
#include "backend/storage/storage.h"
#include "headrace/units.h"

namespace headrace::storage {

// Reads below it are small: for a device they cost about as much as one of this size
// (Capabilities::min_efficient).
inline constexpr Bytes kSmall = 64_KiB;

class SmallReads {
 public:
  explicit SmallReads(const StorageOptions& options);
  ~SmallReads();  // Requires: nothing is in flight, no call is running.
  SmallReads(const SmallReads&) = delete;
  SmallReads& operator=(const SmallReads&) = delete;

  // Ends that nobody waits for are announced at `descriptor`, and look() is called then. Before it
  // no read is taken. Called once, before any other.
  void serve(int descriptor) { descriptor_ = descriptor; }

  // False: not a small read that one request can do, or no place for it, or small reads of the
  // thread from before its last send() have yet to end: the lane's. What is taken is in flight
  // after the thread's next send().
  bool accept(AcceptedPiece& piece);
  // Sends what this thread has had accepted. Reports what has ended.
  void send();
  // Backend::help.
  std::size_t help(std::span<const std::byte> to, Nanoseconds most);

  // The rest is called by the thread of the one lane that is told.
  // Reports what nobody waits for. True: call again soon.
  bool look();
  // As look(), which came before; and what is in flight is older by one look of the lane. What is
  // too old is cancelled.
  bool age();
  // Asks the kernel to end what was cancelled. False: all of that has ended.
  bool ask();
  // Whether accepted reads have yet to be reported.
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
