// SPDX-License-Identifier: Apache-2.0
// The parts that depend on the library's version, HEADRACE_FAKE_DRIVER: its number, and the
// functions that older drivers lack. Compiled once for each library.
#include <cstdint>

#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {

int driver_version() { return HEADRACE_FAKE_DRIVER; }

#if HEADRACE_FAKE_DRIVER >= 11040
HEADRACE_FAKE_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (const CUresult result = ready(); result != CUDA_SUCCESS) return result;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (driver().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = {{'h', 'e', 'a', 'd', 'r', 'a', 'c', 'e', ' ', 'f', 'a', 'k', 'e'}};
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}
#endif

#if HEADRACE_FAKE_DRIVER >= 12020
HEADRACE_FAKE_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, std::size_t size,
                                             CUmem_advise advice, CUmemLocation location) {
  return advise(address, size, advice, device_of(location));
}

HEADRACE_FAKE_EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, std::size_t size,
                                                    CUmemLocation location, unsigned int flags,
                                                    CUstream stream) {
  return flags == 0 ? prefetch(address, size, device_of(location), stream)
                    : CUDA_ERROR_INVALID_VALUE;
}
#endif

#if HEADRACE_FAKE_DRIVER >= 12080
HEADRACE_FAKE_EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from,
                                                 std::size_t* sizes, std::size_t count,
                                                 CUmemcpyAttributes* attributes,
                                                 std::size_t* first_of_attribute,
                                                 std::size_t attributes_count, std::size_t* failed,
                                                 CUstream stream) {
  *failed = SIZE_MAX;  // no particular one
  return copy_batch({to, from, sizes, count, attributes, first_of_attribute, attributes_count},
                    stream);
}
#endif

#if HEADRACE_FAKE_DRIVER >= 13000
HEADRACE_FAKE_EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from,
                                                    std::size_t* sizes, std::size_t count,
                                                    CUmemcpyAttributes* attributes,
                                                    std::size_t* first_of_attribute,
                                                    std::size_t attributes_count, CUstream stream) {
  return copy_batch({to, from, sizes, count, attributes, first_of_attribute, attributes_count},
                    stream);
}
#endif

}  // namespace headrace::cuda::fake
