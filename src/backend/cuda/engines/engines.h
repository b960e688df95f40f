// SPDX-License-Identifier: Apache-2.0
// The copy engines of GPUs as a backend: host <-> GPU, GPU <-> GPU, and files <-> GPU through host
// memory. Each GPU's driver makes the copies.
//
// Facade of the folder. The host's side of a copy decides the way. The engine itself copies memory
// that is registered with the driver, by Placement::pin or by other code of this process. Other
// memory and files go through a ring of pinned memory, so submit() never blocks. The reasons:
// docs/design/gpu.md. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/backend.h"
#include "headrace/clock.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

namespace cuda {
struct Driver;
}

// All numbers and times are at least 1.
struct CudaOptions {
  // Drives the ssd engines of the machine and outlives this backend; nullptr: files are not copied.
  Backend* storage = nullptr;
  // Pieces that each engine accepts before it is full.
  std::size_t max_pieces = 128;
  // Pinned buffers per engine for unpinned memory and files, and the size of each, a power of two
  // of at least 64 KiB.
  std::size_t slots = 32;
  Bytes slot = 1_MiB;
  // A kernel on the GPU's multiprocessors makes the small copies within this limit, if one submit()
  // gives many in one direction. Other kernels then lack that time. If not set, the first of these
  // counts:
  // - HEADRACE_GPU_GATHER ("BYTES,COUNT"; 0: none);
  // - for lists (Piece::list): kGatherOfLists;
  // - for other copies: the limit measured in the machine's copy rates (CopyRate::gather), else
  //   none.
  std::optional<GatherLimit> gather = {};
  // A GPU that gives no answer for this time counts as hung. Pieces not yet given to it end as
  // timed_out, and no more are accepted. The GPU may still write the pieces that it was given. So
  // after four more times the limit the process ends.
  //
  // A copy that may wait for multiprocessors (inside a GPU, or by the gathering kernel) gets 120
  // times the limit, an hour, because other programs' kernels may occupy them for minutes. One case
  // has no bound: a copy of unregistered memory that the GPU reaches by the CPUs' page tables,
  // since the driver may make it inside its call. The backend's destructor waits for all copies.
  Nanoseconds limit = std::chrono::seconds{30};
  const Clock* clock = &system_clock();
  // Replaces the driver of this process: scripted faults in tests.
  const cuda::Driver* driver = nullptr;
};

// Drives `engines`, which are gpu engines of `machine`. The first submit() that copies on a GPU
// makes the GPU's context, which takes some hundred MiB of its memory. That submit() fails with
// exhausted if there is no memory or thread for it. Errors: absent: no CUDA driver here, or it
// shows none of these GPUs; unsupported: one is no gpu engine, the driver is too old, or it was
// initialised before a fork(); invalid: HEADRACE_GPU_GATHER.
Result<std::unique_ptr<Backend>> open_cuda(const Machine& machine, std::vector<EngineId> engines);
Result<std::unique_ptr<Backend>> open_cuda(const Machine& machine, std::vector<EngineId> engines,
                                           const CudaOptions& options);

}  // namespace headrace
