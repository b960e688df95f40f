// SPDX-License-Identifier: Apache-2.0
// Requests to the kernel in flight.
//
// A Queue is what io_uring and a few threads have in common. It belongs to one thread (its lane),
// which starts requests and waits for them; only wake() may be called by others. A SharedRing is
// an io_uring that several threads use. Neither retries nor resumes: results are as the system
// gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::storage {

// One read or write. The kernel may touch `memory` from start() until wait() gives it back.
struct Request {
  bool write = false;
  int fd = -1;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;
  bool bounce = false;  // `memory` lies in the bounce buffers
};

struct Finished {
  Request* request;
  int result;  // bytes, or a negative errno
};

class Queue {
 public:
  virtual ~Queue() = default;  // Requires: nothing is in flight.

  // Takes a request; it is in flight at the latest when wait() is called. Requires: no more than
  // the depth of the queue are in flight.
  virtual void start(Request& request) = 0;
  // Asks to end `request`, which is in flight, early. wait() still gives it back, with
  // -ECANCELED or as if nothing had been asked. What a device already works on is not stopped.
  virtual void cancel(Request& request) = 0;
  // Sleeps until a request has ended, wake() was called, or `timeout` has passed; appends what has
  // ended to `out`. May return early.
  virtual void wait(Nanoseconds timeout, std::vector<Finished>& out) = 0;
  // Ends a wait() that is running, or else the next. From any thread.
  virtual void wake() = 0;
  // An eventfd that does as wake() when it is written to; nothing if there is none.
  virtual std::optional<int> wake_descriptor() const = 0;
  // In words, for Capabilities::note.
  virtual std::string describe() const = 0;
};

// An io_uring for a few reads, used by several threads: all but sleep() under a lock of theirs.
class SharedRing {
 public:
  virtual ~SharedRing() = default;  // Requires: nothing is in flight.

  // Takes a read; send() passes it on. Requires: no more than the depth of the ring are in flight.
  virtual void start(Request& request) = 0;
  // As Queue::cancel; send() passes it on.
  virtual void cancel(Request& request) = 0;
  // Passes on what was started. Does not wait for a device. False: the kernel took only a part, for
  // want of memory; call again a little later.
  virtual bool send() = 0;
  // Appends what has ended to `out`, once. From the end of `kept` (null: of none) on no sleep()
  // lasts, until take() is called without it.
  virtual void take(std::vector<Finished>& out, const Request* kept) = 0;
  // Whether each request that ends from now on writes to the eventfd that the ring was opened with.
  // What had ended before is there for take() when this has returned. At first: no.
  virtual void announce(bool ends) = 0;
  // Sleeps until something has ended that nobody took, or `timeout` has passed; may return early.
  // Takes no lock. Requires: nobody else sleeps, and others take with the request that this thread
  // waits for as `kept`.
  virtual void sleep(Nanoseconds timeout) = 0;
};

// io_uring. Must be called by the thread that uses the queue (the ring has a single issuer).
// `bounce` is registered with the ring if the limit on locked memory allows it. denied,
// unsupported, exhausted: as io_uring_setup says.
Result<std::unique_ptr<Queue>> open_uring(std::size_t depth, std::span<std::byte> bounce);

// pread and pwrite in at most `threads` threads, started when they are needed. exhausted: not even
// one thread could be started.
Result<std::unique_ptr<Queue>> open_threads(std::size_t threads, std::size_t depth);

// Any thread may call it. unsupported, denied, exhausted: as io_uring_setup says. Borrows
// `descriptor`.
Result<std::unique_ptr<SharedRing>> open_shared_ring(std::size_t depth, int descriptor);

}  // namespace headrace::storage
