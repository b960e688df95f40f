// SPDX-License-Identifier: Apache-2.0
// The functions for managed memory, except those that only some drivers have (versioned.cpp).
#include <algorithm>
#include <cstring>
#include <utility>

#include "support/fake_cuda/driver.h"
#include "support/fake_cuda/managed/managed.h"

namespace headrace::cuda::fake {
namespace {

CUmemLocation location_of(CUdevice device) {
  if (device == CU_DEVICE_CPU) return {CU_MEM_LOCATION_TYPE_HOST, 0};
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

// Whether a page can be requested at the location.
CUresult check(CUmemLocation location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (driver().device(location.id) == nullptr ||
          driver().settings.paradigm == Paradigm::limited) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST: return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return location.id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_INVALID: break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult check(CUmem_advise advice, CUmemLocation location) {
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: return check(location);
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      if (location.type > CU_MEM_LOCATION_TYPE_HOST) return CUDA_ERROR_INVALID_VALUE;
      return check(location);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Host memory that a device reaches without registration.
bool is_reachable_pageable(const std::shared_ptr<Range>& range) {
  const Paradigm paradigm = driver().settings.paradigm;
  return range == nullptr && (paradigm == Paradigm::ats || paradigm == Paradigm::hmm);
}

// Calls `body` with the pages of managed memory and the offset in them. Advice on pageable memory
// is accepted if devices reach it, and has no effect.
template <class Body>
CUresult on_managed(CUdeviceptr address, std::size_t size, Body body) {
  const std::shared_ptr<Range> range = driver().memory.find(address);
  if (address != 0 && size > 0 && is_reachable_pageable(range)) return CUDA_SUCCESS;
  if (range == nullptr || range->kind != Kind::managed || size == 0 ||
      !range->contains(address, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return body(range, address - range->address);
}

CUresult get_attribute(ManagedPages& pages, CUmem_range_attribute what, std::size_t offset,
                       std::size_t size, int* values, std::size_t count) {
  const auto type = [&](const std::optional<CUmemLocation>& at) {
    return static_cast<int>(at ? at->type : CU_MEM_LOCATION_TYPE_INVALID);
  };
  const auto id = [&](const std::optional<CUmemLocation>& at) { return at ? at->id : 0; };
  const auto device = [&](const std::optional<CUmemLocation>& at) {
    if (!at || at->type == CU_MEM_LOCATION_TYPE_INVALID) return CU_DEVICE_INVALID;
    return at->type == CU_MEM_LOCATION_TYPE_DEVICE ? at->id : CU_DEVICE_CPU;
  };
  const auto preferred = pages.preferred(offset, size);
  const auto prefetched = pages.prefetched(offset, size);
  switch (what) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *values = pages.read_mostly(offset, size).value_or(false);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: *values = device(preferred); break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      const auto by = pages.accessed_by(offset, size);
      std::fill_n(values, count, CU_DEVICE_INVALID);
      std::copy_n(by.begin(), std::min(count, by.size()), values);
      break;
    }
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: *values = device(prefetched); break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE: *values = type(preferred); break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID: *values = id(preferred); break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: *values = type(prefetched); break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: *values = id(prefetched); break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult advise(CUdeviceptr address, std::size_t size, CUmem_advise advice,
                CUmemLocation location) {
  return in_context([&](Context&) -> CUresult {
    if (const CUresult wrong = check(advice, location); wrong != CUDA_SUCCESS) return wrong;
    return on_managed(address, size, [&](const auto& range, std::size_t offset) {
      range->pages->advise(offset, size, advice, location);
      return CUDA_SUCCESS;
    });
  });
}

CUresult prefetch(CUdeviceptr address, std::size_t size, CUmemLocation location, CUstream stream) {
  return on_stream(stream, [&](Context&, BoundStream& its) -> CUresult {
    if (const CUresult wrong = check(location); wrong != CUDA_SUCCESS) return wrong;
    return on_managed(address, size, [&](const auto& range, std::size_t offset) {
      range->pages->note_prefetch(offset, size, location);
      Context& context = *its.context;
      const bool host = location.type != CU_MEM_LOCATION_TYPE_DEVICE;
      Device* const to = host ? nullptr : driver().device(location.id);
      context.enqueue(its, [&context, range, offset, size, to] {
        const Cost cost = range->pages->prefetch(offset, size, to);
        context.sleep(context.device().link_time(1, cost.migrated));
        return CUDA_SUCCESS;
      });
      return CUDA_SUCCESS;
    });
  });
}

HEADRACE_FAKE_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t size,
                                                unsigned int flags) {
  return in_context_fallible([&](Context& current) -> CUresult {
    const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
    if (address == nullptr || size == 0 || !known) return CUDA_ERROR_INVALID_VALUE;
    auto range = make_managed_range(size, &current);
    if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    range->pages = std::make_unique<ManagedPages>(driver().managed, range->address, size);
    watch_host();
    *address = range->address;
    driver().memory.add(std::move(range));
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuMemAdvise(CUdeviceptr address, std::size_t size,
                                          CUmem_advise advice, CUdevice device) {
  return advise(address, size, advice, location_of(device));
}

HEADRACE_FAKE_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, std::size_t size,
                                                 CUdevice device, CUstream stream) {
  return prefetch(address, size, location_of(device), stream);
}

HEADRACE_FAKE_EXPORT CUresult cuMemRangeGetAttribute(void* value, std::size_t value_size,
                                                     CUmem_range_attribute what,
                                                     CUdeviceptr address, std::size_t size) {
  return in_context([&](Context&) -> CUresult {
    const std::size_t count = value_size / sizeof(int);
    const bool many = what == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    if (value == nullptr || value_size % sizeof(int) != 0 || count < 1 || (!many && count != 1)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto range = driver().memory.find(address);
    if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return on_managed(address, size, [&](const auto& found, std::size_t offset) {
      return get_attribute(*found->pages, what, offset, size, static_cast<int*>(value), count);
    });
  });
}

}  // namespace headrace::cuda::fake
