// SPDX-License-Identifier: Apache-2.0
// Files on SSD: copies between a file and memory with io_uring past the page cache, or with a few
// threads where io_uring is denied.
//
// Facade of the folder. Why it is as it is: docs/design/storage.md. A written piece is in the file
// for every reader, and durable only after an fsync. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "headrace/backend.h"
#include "headrace/clock.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

namespace storage {
class Queue;
class SharedRing;
}  // namespace storage

// What answers a lane's requests.
enum class StorageQueue : std::uint8_t {
  automatic,  // io_uring, threads where it is denied
  io_uring,   // or nothing
  threads,    // pread and pwrite; with HEADRACE_IO_URING=0 automatic is this
};

// All numbers and times are at least 1; the most is in parentheses.
struct StorageOptions {
  // Pieces each engine accepts before it says that it is full (65 536).
  std::size_t max_pieces = 128;
  // Requests each engine keeps in the kernel (16 384).
  std::size_t queue_depth = 64;
  // Larger pieces are cut into requests of this size, a power of two from 4 KiB to 64 MiB; of one
  // block where the device's is larger.
  Bytes request = 512_KiB;
  // Aligned buffers per engine, 256 KiB each, for what cannot go straight to memory (4096).
  std::size_t bounce_buffers = 32;
  StorageQueue queue = StorageQueue::automatic;
  // Threads per engine where io_uring is not used (4096).
  std::size_t threads = 16;
  // A request not answered after this long is cancelled, and its piece ends as timed_out as soon
  // as the kernel has let go of its memory: within 120 s more, the time-out of block devices, or
  // the process ends. Pieces that wait for their turn end when the device has answered nothing for
  // as long. What threads read from a hung network file system ends when that does. (24 h)
  Nanoseconds limit = std::chrono::seconds{30};
  const Clock* clock = &system_clock();
  // Puts another queue around each engine's: scripted faults in tests.
  std::function<std::unique_ptr<storage::Queue>(std::unique_ptr<storage::Queue>)> wrap = {};
  // The same around the rings of threads that read little.
  std::function<std::unique_ptr<storage::SharedRing>(std::unique_ptr<storage::SharedRing>)>
      wrap_shared = {};
};

// Drives `engines`, which are ssd engines of `machine`. unsupported: one of them is not, or the
// queue asked for is not to be had.
// invalid: an option out of its span. exhausted: no thread or memory for a queue. Works without
// io_uring, without locked memory and without free descriptors, more slowly; Capabilities::note
// tells.
Result<std::unique_ptr<Backend>> open_storage(const Machine& machine,
                                              std::vector<EngineId> engines);
Result<std::unique_ptr<Backend>> open_storage(const Machine& machine, std::vector<EngineId> engines,
                                              const StorageOptions& options);

}  // namespace headrace
