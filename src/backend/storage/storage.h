// SPDX-License-Identifier: Apache-2.0
// Copies between a file on SSD and memory: by io_uring past the page cache, or by a few threads if
// io_uring is denied.
//
// Facade of the folder. The reasons: docs/design/storage.md. A written piece is visible to every
// reader of the file, and durable only after fsync. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

// The size now of an open file or block device; nothing if the kernel does not know (errno).
std::optional<Bytes> size_now(int fd);
}  // namespace storage

// The means to make a lane's requests.
enum class StorageQueue : std::uint8_t {
  automatic,  // io_uring; threads if it is denied
  io_uring,   // or an error
  threads,    // pread and pwrite; with HEADRACE_IO_URING=0 automatic means this
};

// All numbers and times are at least 1.
struct StorageOptions {
  // Pieces that each engine accepts before it is full.
  std::size_t max_pieces = 128;
  // Requests each engine keeps in the kernel, at most 16 384.
  std::size_t queue_depth = 64;
  // Larger pieces are cut into requests of this size, a power of two from 4 KiB to 64 MiB. If the
  // device's block is larger, a request is one block.
  Bytes request = 512_KiB;
  // Aligned buffers per engine, 256 KiB each, for bytes that cannot go straight to memory.
  std::size_t bounce_buffers = 32;
  StorageQueue queue = StorageQueue::automatic;
  // Threads per engine if io_uring is not used; and threads that read UserSources.
  std::size_t threads = 16;
  // A request without an answer after this time is cancelled. Its piece ends as timed_out
  // once the kernel has released its memory. That takes at most 120 s more, the time-out of block
  // devices; then the process ends. Waiting pieces end when the device has answered nothing for as
  // long. A read by a thread from a hung network file system ends only when the file system
  // answers.
  Nanoseconds limit = std::chrono::seconds{30};
  const Clock* clock = &system_clock();
  // Wraps each engine's queue: scripted faults in tests.
  std::function<std::unique_ptr<storage::Queue>(std::unique_ptr<storage::Queue>)> wrap = {};
  // Wraps the rings of the threads with small reads.
  std::function<std::unique_ptr<storage::SharedRing>(std::unique_ptr<storage::SharedRing>)>
      wrap_shared = {};
};

// Drives `engines`, which are ssd engines of `machine`. It also works without io_uring, locked
// memory or free descriptors, but more slowly; Capabilities::note says so. Errors: unsupported: one
// is no ssd engine, or the wanted queue is not available;
// exhausted: no thread or memory for a queue.
Result<std::unique_ptr<Backend>> open_storage(const Machine& machine,
                                              std::vector<EngineId> engines);
Result<std::unique_ptr<Backend>> open_storage(const Machine& machine, std::vector<EngineId> engines,
                                              const StorageOptions& options);

}  // namespace headrace
