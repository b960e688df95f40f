// Requests to the kernel in flight: what io_uring and a few threads have in common.
//
// A queue belongs to one thread (its lane), which starts requests and waits for them; only wake()
// may be called by others. It neither retries nor resumes: results are as the system gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  // In words, for Capabilities::note.
  virtual std::string describe() const = 0;
};

// io_uring. Must be called by the thread that uses the queue (the ring has a single issuer).
// `bounce` is registered with the ring if the limit on locked memory allows it. denied,
// unsupported, exhausted: as io_uring_setup says.
Result<std::unique_ptr<Queue>> open_uring(std::size_t depth, std::span<std::byte> bounce);

// pread and pwrite in at most `threads` threads, started when they are needed. exhausted: not even
// one thread could be started.
Result<std::unique_ptr<Queue>> open_threads(std::size_t threads);

}  // namespace headrace::storage
