// SPDX-License-Identifier: Apache-2.0
// The backend that copies with cores: worker threads pinned to the CPUs of a node, one engine per
// node, copying between byte-addressable memory with copy_bytes.
//
// A piece is copied by one worker, from its start to its end; splitting a move over cores is for
// routes and movers, which see the whole move. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "headrace/backend.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace {

struct CpuOptions {
  // Worker threads per engine; 0: as many as the engine's node has CPUs here, at most four (two to
  // four cores fill the memory channels of a socket with streaming stores, more would only take
  // cores from the program that wants the data).
  unsigned workers = 0;
  // Pieces accepted and not yet completed, per engine.
  std::size_t max_in_flight = 64;
  // Pieces below it are copied inside submit(): handing one to a thread and back costs some
  // microseconds, in which a core copies about this much.
  Bytes inline_below = 16_KiB;
  // Pin the workers to the CPUs of their node, where those exist and are allowed.
  bool pin = true;
};

// Opens the engines `engines` of `machine`, all of which have to be of kind cpu. Engines whose
// CPUs this process may not use (a machine loaded from a file, a narrow cpuset) run unpinned; the
// note of the capabilities says so. invalid: an engine that is not there or of another kind;
// exhausted: no threads to be had.
Result<std::unique_ptr<Backend>> open_cpu(const Machine& machine, std::vector<EngineId> engines);
Result<std::unique_ptr<Backend>> open_cpu(const Machine& machine, std::vector<EngineId> engines,
                                          const CpuOptions& options);

}  // namespace headrace
