// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/unified_memory/shared_array.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "core/fork.h"
#include "measure/instruments/gpu/managed_memory.h"

namespace headrace {

using namespace cuda;

Result<std::unique_ptr<SharedArray>> SharedArray::make(const Machine& machine, GpuSession& gpu,
                                                       const Device& device,
                                                       const UnifiedMemoryCase& asked) {
  std::unique_ptr<SharedArray> array(new SharedArray(gpu, asked.size));
  if (asked.managed) {
    HEADRACE_TRY_STATUS(array->allocate_managed(device, asked));
  } else {
    HEADRACE_TRY_STATUS(array->allocate_on_host(machine, device, asked));
  }
  return array;
}

SharedArray::~SharedArray() {
  if (gpu_.stuck()) {
    if (buffer_) abandon(std::move(buffer_));  // the GPU may still use it
  } else if (managed_) {
    gpu_.driver().cuMemFree_v2(address_);
  }
}

Status SharedArray::allocate_managed(const Device& device, const UnifiedMemoryCase& asked) {
  HEADRACE_TRY(const int managed, gpu_.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY));
  if (managed == 0) {
    return fail(ErrorCode::unsupported, "this GPU has no managed memory; take memory of the host");
  }
  HEADRACE_TRY(const Bytes room, managed_room(gpu_, device));
  if (asked.size > room && !asked.oversubscribe) {
    return fail(ErrorCode::exhausted,
                "{} of managed memory on a GPU with room for {}, which is what it has free less {} "
                "to spare: its pages would be evicted for others; give less, or --oversubscribe",
                to_string(asked.size), to_string(room), to_string(managed_reserve(device)));
  }
  HEADRACE_TRY_STATUS(
      gpu_.ok(gpu_.driver().cuMemAllocManaged(&address_, asked.size.value, CU_MEM_ATTACH_GLOBAL),
              "cannot allocate managed memory"));
  managed_ = true;
  if (asked.read_mostly) {
    HEADRACE_TRY_STATUS(advise(CU_MEM_ADVISE_SET_READ_MOSTLY, false));
  }
  if (asked.preferred_location_cpu) {
    HEADRACE_TRY_STATUS(advise(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, true));
  }
  if (asked.accessed_by) HEADRACE_TRY_STATUS(advise(CU_MEM_ADVISE_SET_ACCESSED_BY, false));
  return {};
}

Status SharedArray::allocate_on_host(const Machine& machine, const Device& device,
                                     const UnifiedMemoryCase& asked) {
  if (!device.pageable_access) {
    return fail(ErrorCode::unsupported,
                "the GPU cannot read memory of the host that is not registered; take managed "
                "memory");
  }
  const NodeId node = asked.node.value_or(NodeId{0});
  HEADRACE_TRY(buffer_, allocate_for_cpus(machine, asked.size, Placement::on(node)));
  // The GPU uses the host's addresses.
  address_ = reinterpret_cast<std::uintptr_t>(buffer_->bytes().data());
  return {};
}

Status SharedArray::advise(CUmem_advise advice, bool about_host) const {
  const CUmemLocation about = about_host ? kHost : gpu_location(gpu_.device());
  return gpu_.ok(cuda::advise(gpu_.driver(), address_, size_.value, advice, about),
                 "the driver takes no such advice");
}

Status SharedArray::prefetch(std::uint64_t offset, std::uint64_t size, CUstream stream) const {
  const CUmemLocation here = gpu_location(gpu_.device());
  return gpu_.ok(cuda::prefetch(gpu_.driver(), address_ + offset, size, here, stream),
                 "cannot prefetch");
}

std::span<std::uint32_t> SharedArray::words() const {
  return {reinterpret_cast<std::uint32_t*>(address_), size_.value / sizeof(std::uint32_t)};
}

std::optional<Residency> SharedArray::residency() const {
  auto found = where(std::as_bytes(words()));
  if (!found) return std::nullopt;
  return *std::move(found);
}

std::optional<bool> SharedArray::advice_confirmed(const UnifiedMemoryCase& asked) const {
  const Driver& driver = gpu_.driver();
  if (!managed_ || driver.cuMemRangeGetAttribute == nullptr) return std::nullopt;
  const auto answer = [&](CUmem_range_attribute what) {
    int value = CU_DEVICE_INVALID;
    const CUresult result =
        driver.cuMemRangeGetAttribute(&value, sizeof value, what, address_, size_.value);
    return result == CUDA_SUCCESS ? std::optional<int>(value) : std::nullopt;
  };
  const auto mostly = answer(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY);
  const auto preferred = answer(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION);
  const auto accessed = answer(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY);
  if (!mostly || !preferred || !accessed) return std::nullopt;
  return (*mostly == 1) == asked.read_mostly &&
         (*preferred == CU_DEVICE_CPU) == asked.preferred_location_cpu &&
         (*accessed == gpu_.device()) == asked.accessed_by;
}

}  // namespace headrace
