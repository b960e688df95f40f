// SPDX-License-Identifier: Apache-2.0
// The functions for managed memory, except those that only some drivers have (versioned.cpp). Host
// and devices share its bytes; advice and prefetches are noted and have no other effect.
#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {
namespace {

// Calls `body` with the advice on managed memory.
template <class Body>
CUresult on_advice(CUdeviceptr address, std::size_t size, Body body) {
  const std::shared_ptr<Range> range = driver().memory.find(address);
  if (range == nullptr || range->kind != Kind::managed || size == 0 ||
      !range->contains(address, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Advice& advice = range->advice;
  const MutexLock lock(advice.mutex);
  return body(advice);
}

bool exists(CUdevice device) {
  return device == CU_DEVICE_CPU || driver().device(device) != nullptr;
}

}  // namespace

CUresult advise(CUdeviceptr address, std::size_t size, CUmem_advise advice, CUdevice about) {
  return in_context([&](Context&) -> CUresult {
    if (!exists(about)) return CUDA_ERROR_INVALID_DEVICE;
    return on_advice(address, size, [&](Advice& its) {
      its.mutex.assert_held();
      switch (advice) {
        case CU_MEM_ADVISE_SET_READ_MOSTLY: its.read_mostly = true; break;
        case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: its.preferred = about; break;
        case CU_MEM_ADVISE_SET_ACCESSED_BY: its.accessed_by = about; break;
      }
      return CUDA_SUCCESS;
    });
  });
}

CUresult prefetch(CUdeviceptr address, std::size_t size, CUdevice to, CUstream stream) {
  return on_stream(stream, [&](Stream& its) -> CUresult {
    if (!exists(to)) return CUDA_ERROR_INVALID_DEVICE;
    its.enqueue([] { return CUDA_SUCCESS; });
    return on_advice(address, size, [&](Advice& advice) {
      advice.mutex.assert_held();
      advice.prefetched = to;
      return CUDA_SUCCESS;
    });
  });
}

HEADRACE_FAKE_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t size,
                                                unsigned int flags) {
  return in_context_fallible([&](Context& current) -> CUresult {
    if (address == nullptr || size == 0 || flags != CU_MEM_ATTACH_GLOBAL) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto range = make_host_range(Kind::managed, size, &current);
    if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = range->address;
    driver().memory.add(std::move(range));
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuMemAdvise(CUdeviceptr address, std::size_t size,
                                          CUmem_advise advice, CUdevice device) {
  return advise(address, size, advice, device);
}

HEADRACE_FAKE_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, std::size_t size,
                                                 CUdevice device, CUstream stream) {
  return prefetch(address, size, device, stream);
}

HEADRACE_FAKE_EXPORT CUresult cuMemRangeGetAttribute(void* value, std::size_t value_size,
                                                     CUmem_range_attribute what,
                                                     CUdeviceptr address, std::size_t size) {
  return in_context([&](Context&) -> CUresult {
    if (value == nullptr || value_size != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
    return on_advice(address, size, [&](const Advice& its) {
      its.mutex.assert_held();
      int& number = *static_cast<int*>(value);
      switch (what) {
        case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: number = its.read_mostly; break;
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: number = its.preferred; break;
        case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: number = its.accessed_by; break;
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: number = its.prefetched; break;
      }
      return CUDA_SUCCESS;
    });
  });
}

}  // namespace headrace::cuda::fake
