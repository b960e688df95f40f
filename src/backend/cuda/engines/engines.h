// SPDX-License-Identifier: Apache-2.0
// The copy engines of GPUs as a backend: host <-> GPU, GPU <-> GPU, and files <-> GPU through host
// memory, each by the driver of its GPU.
//
// Facade of the folder. What the host's side of a copy is decides its way: memory registered with
// the driver (Placement::pin, or by others in this process) is copied by the engine itself; all
// other memory, and files, through a ring of pinned memory, so that submit() never blocks. Why it
// is as it is: docs/design/gpu.md. Thread-safe.
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
  // Drives the ssd engines of the machine and outlives this one; nullptr: files are not copied.
  Backend* storage = nullptr;
  // Pieces each engine accepts before it says that it is full.
  std::size_t max_pieces = 128;
  // Pinned buffers per engine for what is not pinned, and their size, a power of two from 64 KiB
  // up.
  std::size_t slots = 32;
  Bytes slot = 1_MiB;
  // Several copies by one call where the driver can (cuMemcpyBatchAsync).
  bool batches = true;
  // Which of many small copies that one submit() gives in one direction are made by a kernel on the
  // GPU's multiprocessors, whose time others then lack. Not said here: HEADRACE_GPU_GATHER
  // ("BYTES,COUNT"; 0: none), and without that what the machine's copy rates have measured
  // (CopyRate::gather), else none; of lists (Piece::list) without either kGatherOfLists.
  std::optional<GatherLimit> gather = {};
  // A GPU that answers nothing for so long is taken for hung: what has not been given to it ends as
  // timed_out, and no more is accepted. What it has been given may still be written, so four times
  // as long after that the process ends. A copy that may wait for multiprocessors (inside a GPU, or
  // gathered by a kernel) is waited for 120 times the limit, an hour: kernels of others may have
  // them for minutes. Not bounded: a copy of unregistered memory that the GPU reaches by page
  // tables of the CPUs, which the driver may do inside its call. The backend's end waits for all.
  Nanoseconds limit = std::chrono::seconds{30};
  const Clock* clock = &system_clock();
  // Instead of the one of this process: scripted faults in tests.
  const cuda::Driver* driver = nullptr;
};

// Drives `engines`, which are gpu engines of `machine`. absent: no CUDA driver here, or it shows
// none of their GPUs. unsupported: one is no gpu engine, the driver is too old, or was initialised
// before a fork(). invalid: an option. A GPU's context, which takes some hundred MiB of it, is made
// by the first submit() that copies there; exhausted there: no memory or thread for it.
Result<std::unique_ptr<Backend>> open_cuda(const Machine& machine, std::vector<EngineId> engines);
Result<std::unique_ptr<Backend>> open_cuda(const Machine& machine, std::vector<EngineId> engines,
                                           const CudaOptions& options);

}  // namespace headrace
