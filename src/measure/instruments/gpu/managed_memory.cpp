// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/gpu/managed_memory.h"

#include <algorithm>

#include "core/fail.h"

namespace headrace {

using namespace cuda;

// Less on a GPU smaller than any real one.
Bytes managed_reserve(const Device& device) {
  return std::min(512_MiB, Bytes{device.capacity.value / 8});
}

Result<Bytes> managed_room(const GpuSession& gpu, const Device& device) {
  HEADRACE_TRY(const int managed, gpu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY));
  if (managed == 0) return 0_B;
  HEADRACE_TRY(const Bytes free, gpu.free_memory());
  return free - std::min(free, managed_reserve(device));
}

Result<Device> numbered_device(const Driver& driver, unsigned number) {
  HEADRACE_TRY(const auto devices, find_devices(driver));
  const auto device = std::ranges::find(devices, static_cast<CUdevice>(number), &Device::ordinal);
  if (device != devices.end()) return *device;
  return fail(ErrorCode::absent, "no GPU {}; this process sees {}", number, devices.size());
}

GpuAttributes discovered(const Machine& machine, const Device& device) {
  for (const Node& node : machine.nodes) {
    if (node.gpu && device.is(node.gpu->uuid, node.gpu->pci)) return *node.gpu;
  }
  return {};
}

Result<UnifiedMemoryGpu> unified_memory_gpu(const Machine& machine, unsigned device) {
  HEADRACE_TRY(const Driver* found, driver());
  HEADRACE_TRY(const Device asked, numbered_device(*found, device));
  HEADRACE_TRY(const auto gpu, GpuSession::open(*found, asked));
  UnifiedMemoryGpu result{.name = asked.name,
                          .capacity = asked.capacity,
                          .paradigm = discovered(machine, asked).paradigm};
  HEADRACE_TRY(result.managed_bytes, managed_room(*gpu, asked));
  return result;
}

}  // namespace headrace
