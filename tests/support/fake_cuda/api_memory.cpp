// SPDX-License-Identifier: Apache-2.0
// The functions for memory: of devices, of the host, and registered.
#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {
namespace {

// Devices allocate memory in whole pages of this size.
std::size_t charged(std::size_t size) { return (size + 511) / 512 * 512; }

// Whether every page of the range is mapped.
bool is_mapped(CUdeviceptr address, std::size_t size) {
  constexpr CUdeviceptr page = 4096;
  const CUdeviceptr begin = address / page * page;
  return msync(reinterpret_cast<void*>(begin), address + size - begin, MS_ASYNC) == 0;
}

// Frees the range that begins there, after all work that may use it.
CUresult free_range(CUdeviceptr address, Kind kind, CUresult otherwise) {
  return in_context_alone([&](Context& current) -> CUresult {
    const auto range = driver().memory.find(address);
    if (range == nullptr || range->address != address || range->kind != kind) return otherwise;
    if (const CUresult result = current.synchronize(); result != CUDA_SUCCESS) return result;
    if (driver().memory.remove(address, kind) == nullptr) return otherwise;
    if (kind == Kind::device) {
      driver().device(range->device)->give_memory(charged(range->size));
    }
    return CUDA_SUCCESS;
  });
}

CUresult pointer_attribute(const Range& range, CUpointer_attribute what, CUdeviceptr address,
                           void* value) {
  const bool on_device = range.kind == Kind::device || range.kind == Kind::managed;
  switch (what) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned char*>(value) = range.kind == Kind::managed;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = range.owner->device().ordinal();
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = range.address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(value) = range.size;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

HEADRACE_FAKE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t size) {
  return in_context_fallible([&](Context& current) -> CUresult {
    if (address == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
    Device& device = current.device();
    if (!device.take_memory(charged(size))) return CUDA_ERROR_OUT_OF_MEMORY;
    auto range = make_device_range(size, device.ordinal(), &current);
    if (range == nullptr) {
      device.give_memory(charged(size));
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = range->address;
    driver().memory.add(std::move(range));
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  if (address == 0) return in_context_alone([](Context&) { return CUDA_SUCCESS; });
  const auto range = ready() == CUDA_SUCCESS ? driver().memory.find(address) : nullptr;
  const bool managed = range != nullptr && range->kind == Kind::managed;
  return free_range(address, managed ? Kind::managed : Kind::device, CUDA_ERROR_INVALID_VALUE);
}

HEADRACE_FAKE_EXPORT CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return in_context([&](Context& current) -> CUresult {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *free = current.device().free_memory();
    *total = driver().settings.memory;
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuMemHostAlloc(void** address, std::size_t size, unsigned int flags) {
  return in_context_fallible([&](Context& current) -> CUresult {
    if (address == nullptr || size == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
    auto range = make_host_range(Kind::host, size, &current);
    if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = range->bytes;
    driver().memory.add(std::move(range));
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuMemFreeHost(void* address) {
  return free_range(as_address(address), Kind::host, CUDA_ERROR_INVALID_VALUE);
}

HEADRACE_FAKE_EXPORT CUresult cuMemHostRegister_v2(void* address, std::size_t size,
                                                   unsigned int flags) {
  return in_context_fallible([&](Context& current) -> CUresult {
    const CUdeviceptr begin = as_address(address);
    if (address == nullptr || size == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
    if (size >= driver().settings.register_limit) {
      // Drivers since R580 refuse it, and a later, unrelated call returns the error again.
      current.set_pending(CUDA_ERROR_OUT_OF_MEMORY);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (driver().memory.overlaps(begin, size)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!is_mapped(begin, size)) return CUDA_ERROR_INVALID_VALUE;
    return driver().memory.add(make_registered_range(address, size, &current))
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuMemHostUnregister(void* address) {
  return free_range(as_address(address), Kind::registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

HEADRACE_FAKE_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* host,
                                                           unsigned int flags) {
  return in_context([&](Context&) -> CUresult {
    if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto range = driver().memory.find(as_address(host));
    if (range == nullptr || range->kind == Kind::device) return CUDA_ERROR_INVALID_VALUE;
    *address = as_address(host);
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuPointerGetAttribute(void* value, CUpointer_attribute what,
                                                    CUdeviceptr address) {
  return in_context([&](Context&) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto range = driver().memory.find(address);
    if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return pointer_attribute(*range, what, address, value);
  });
}

}  // namespace headrace::cuda::fake
