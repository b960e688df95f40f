// SPDX-License-Identifier: Apache-2.0
// Managed memory of a GPU, and how the GPU reaches host memory: for `headrace advise um`.
// Thread-safe.
#pragma once

#include <string>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "measure/instruments/gpu/gpu_session.h"

namespace headrace {

struct UnifiedMemoryGpu {
  std::string name;
  Bytes capacity;
  // Maximum managed memory without oversubscription now: free memory less a reserve.
  Bytes managed_bytes;
  GpuParadigm paradigm = GpuParadigm::limited;
};

// The GPU with the driver's number `device`. Temporarily makes a context, which takes GPU memory.
// Errors: absent: no driver or no such GPU, with the reason.
Result<UnifiedMemoryGpu> unified_memory_gpu(const Machine& machine, unsigned device);

// Managed memory that the GPU holds without evicting pages: its free memory, less the reserve;
// 0 without managed memory.
Result<Bytes> managed_room(const GpuSession& gpu, const cuda::Device& device);
// Reserve for the driver and other programs.
Bytes managed_reserve(const cuda::Device& device);

// The GPU with the driver's number. Errors: absent.
Result<cuda::Device> numbered_device(const cuda::Driver& driver, unsigned number);
// The device as discovery found it. All instances of one GPU (MIG) have its PCI address.
GpuAttributes discovered(const Machine& machine, const cuda::Device& device);

}  // namespace headrace
