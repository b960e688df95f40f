// Files on SSD: copies between a file and memory with io_uring past the page cache, or with a few
// threads where io_uring is denied.
//
// Facade of the folder; see docs/design/storage.md for the why. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "headrace/backend.h"
#include "headrace/clock.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

struct StorageOptions {
  // Requests each engine keeps in the kernel.
  std::size_t queue_depth = 64;
  // pread and pwrite in threads even where io_uring works; also by HEADRACE_IO_URING=0.
  bool force_threads = false;
  // Threads per engine where io_uring is not used.
  std::size_t threads = 16;
  // Aligned buffers per engine, for what cannot go straight to memory.
  std::size_t bounce_buffers = 16;
  // A piece not done after this long is cancelled and ends as timed_out.
  Nanoseconds limit = std::chrono::seconds{30};
  const Clock* clock = &system_clock();
};

// Drives `engines`, which are ssd engines of `machine`. unsupported: one of them is not.
// exhausted: no descriptor or memory for a queue.
Result<std::unique_ptr<Backend>> open_storage(const Machine& machine,
                                              std::vector<EngineId> engines);
Result<std::unique_ptr<Backend>> open_storage(const Machine& machine, std::vector<EngineId> engines,
                                              const StorageOptions& options);

}  // namespace headrace
