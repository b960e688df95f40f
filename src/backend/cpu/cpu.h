// SPDX-License-Identifier: Apache-2.0
// The backend that copies with cores. It has one engine per node: worker threads, pinned to the
// CPUs of the node, that copy between byte-addressable memory with copy_bytes.
//
// One worker copies a whole piece. Routes and movers see the whole move, so they split it over
// cores. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "headrace/backend.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace {

struct CpuOptions {
  // Worker threads per engine. 0: one per available CPU of the engine's node, at most four. Two to
  // four cores fill the memory channels of a socket with streaming stores; more would only take
  // cores from the program that needs the data.
  unsigned workers = 0;
  // Pieces accepted and not yet completed, per engine; at least 1.
  std::size_t max_in_flight = 64;
  // Smaller pieces are copied inside submit(): a hand-over to a thread and back costs some
  // microseconds, in which a core copies about this much.
  Bytes inline_below = 16_KiB;
};

// Opens `engines` of `machine`, all of kind cpu. Workers are pinned to the CPUs of their node. An
// engine whose CPUs this process may not use runs
// unpinned, and the note of the capabilities says so: a machine loaded from a file, a narrow
// cpuset. Errors: invalid: an engine is missing or of another kind; exhausted: no thread can be
// started.
Result<std::unique_ptr<Backend>> open_cpu(const Machine& machine, std::vector<EngineId> engines);
Result<std::unique_ptr<Backend>> open_cpu(const Machine& machine, std::vector<EngineId> engines,
                                          const CpuOptions& options);

}  // namespace headrace
