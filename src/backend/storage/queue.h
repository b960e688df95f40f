// SPDX-License-Identifier: Apache-2.0
// Requests to the kernel in flight.
//
// A Queue is the common interface of io_uring and of a few threads. It belongs to one thread (its
// lane), which starts requests and waits for them. Other threads may only call wake(). A SharedRing
// is an io_uring for several threads. Neither retries nor resumes: results are the system's.
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

  // Takes a request, which is in flight at the latest when wait() is called. Requires: at most the
  // queue's depth is in flight.
  virtual void start(Request& request) = 0;
  // Asks to end `request`, which is in flight, early. wait() still returns it, with -ECANCELED or
  // an ordinary result. Work that a device has begun is not stopped.
  virtual void cancel(Request& request) = 0;
  // Sleeps until a request has ended, wake() was called, or `timeout` has passed. Appends ended
  // requests to `out`. May return early.
  virtual void wait(Nanoseconds timeout, std::vector<Finished>& out) = 0;
  // Ends a running wait(), or else the next one. From any thread.
  virtual void wake() = 0;
  // An eventfd: writing to it has the effect of wake(). Empty if there is none.
  virtual std::optional<int> wake_descriptor() const = 0;
  // A description for Capabilities::note.
  virtual std::string describe() const = 0;
};

// An io_uring for a few reads, used by several threads. They call all but sleep() under their own
// lock.
class SharedRing {
 public:
  virtual ~SharedRing() = default;  // Requires: nothing is in flight.

  // Takes a read; send() passes it on. Requires: at most the ring's depth is in flight.
  virtual void start(Request& request) = 0;
  // As Queue::cancel; send() passes it on.
  virtual void cancel(Request& request) = 0;
  // Passes on the started reads without waiting for a device. False: for lack of memory the kernel
  // took only a part; call again a little later.
  virtual bool send() = 0;
  // Appends each ended read to `out` once. After `kept` has ended (null: after no read), no sleep()
  // lasts until take() is called without it.
  virtual void take(std::vector<Finished>& out, const Request* kept) = 0;
  // Switches whether each request that ends from now on writes to the ring's eventfd; initially
  // off. After the return, take() finds all reads that had ended before.
  virtual void announce(bool ends) = 0;
  // Sleeps until a read has ended that nobody took, or `timeout` has passed; may return early.
  // Takes no lock. Requires: no other thread sleeps, and other threads call take() with `kept` set
  // to the request that this thread waits for.
  virtual void sleep(Nanoseconds timeout) = 0;
};

// io_uring. Call it in the thread that uses the queue, since the ring has a single issuer. `bounce`
// is registered with the ring if the limit on locked memory allows it. Errors: denied, unsupported,
// exhausted: as io_uring_setup reports.
Result<std::unique_ptr<Queue>> open_uring(std::size_t depth, std::span<std::byte> bounce);

// pread and pwrite in at most `threads` threads, each started when first needed. Errors: exhausted:
// no thread could be started.
Result<std::unique_ptr<Queue>> open_threads(std::size_t threads, std::size_t depth);

// Any thread may call it. Borrows `descriptor`. Errors: unsupported, denied, exhausted: as
// io_uring_setup reports.
Result<std::unique_ptr<SharedRing>> open_shared_ring(std::size_t depth, int descriptor);

}  // namespace headrace::storage
