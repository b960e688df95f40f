// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/versioned_calls.h"

namespace headrace::cuda {
namespace {

// The form in which the older calls name a place.
CUdevice device_of(CUmemLocation place) {
  return place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : CU_DEVICE_CPU;
}

}  // namespace

CUresult advise(const Driver& driver, CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                CUmemLocation about) {
  if (driver.cuMemAdvise_v2 == nullptr) {
    return driver.cuMemAdvise(address, bytes, advice, device_of(about));
  }
  return driver.cuMemAdvise_v2(address, bytes, advice, about);
}

CUresult prefetch(const Driver& driver, CUdeviceptr address, std::size_t bytes, CUmemLocation to,
                  CUstream stream) {
  if (driver.cuMemPrefetchAsync_v2 == nullptr) {
    return driver.cuMemPrefetchAsync(address, bytes, device_of(to), stream);
  }
  return driver.cuMemPrefetchAsync_v2(address, bytes, to, 0, stream);
}

bool takes_batches(const Driver& driver) {
  return driver.cuMemcpyBatchAsync_v2 != nullptr || driver.cuMemcpyBatchAsync != nullptr;
}

CUresult copy_batch(const Driver& driver, std::span<CUdeviceptr> to, std::span<CUdeviceptr> from,
                    std::span<std::size_t> sizes, CUstream stream) {
  CUmemcpyAttributes how{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  std::size_t first = 0;
  if (driver.cuMemcpyBatchAsync_v2 != nullptr) {
    return driver.cuMemcpyBatchAsync_v2(to.data(), from.data(), sizes.data(), sizes.size(), &how,
                                        &first, 1, stream);
  }
  std::size_t failed = 0;
  return driver.cuMemcpyBatchAsync(to.data(), from.data(), sizes.data(), sizes.size(), &how, &first,
                                   1, &failed, stream);
}

}  // namespace headrace::cuda
