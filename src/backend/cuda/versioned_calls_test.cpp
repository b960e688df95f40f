// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/versioned_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "backend/cuda/context.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace headrace::cuda {
namespace {

constexpr std::size_t kBytes = 1 << 20;

struct Managed {
  Managed() {
    EXPECT_EQ(driver.cuMemAllocManaged(&address, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~Managed() {
    driver.cuStreamDestroy_v2(stream);
    driver.cuMemFree_v2(address);
  }
  int told(CUmem_range_attribute what) const {
    int value = CU_DEVICE_INVALID;
    EXPECT_EQ(driver.cuMemRangeGetAttribute(&value, sizeof value, what, address, kBytes),
              CUDA_SUCCESS);
    return value;
  }
  int advised(CUmem_advise advice, CUmemLocation about, CUmem_range_attribute what) const {
    EXPECT_EQ(advise(driver, address, kBytes, advice, about), CUDA_SUCCESS);
    return told(what);
  }
  int prefetched(CUmemLocation to) const {
    EXPECT_EQ(prefetch(driver, address, kBytes, to, stream), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION);
  }
  const Driver& driver = **cuda::driver();
  const std::shared_ptr<const Context> context = *Context::of(driver, 1);
  const CurrentContext current{*context};
  CUdeviceptr address = 0;
  CUstream stream = nullptr;
};

TEST(CudaVersionedCalls, AdviseAndPrefetchByEachDriver) {
  for (const char* version : {"", "12.2", "11.0"}) {
    SCOPED_TRACE(version);
    const FakeCudaLibrary library("memory=64M,devices=2", version);
    const Managed managed;
    const bool old = version == std::string("11.0");
    EXPECT_EQ(managed.driver.cuMemAdvise_v2 == nullptr, old);
    EXPECT_EQ(managed.driver.cuMemPrefetchAsync_v2 == nullptr, old);
    for (const CUmemLocation host : {kHost, host_node_location(0)}) {
      EXPECT_EQ(managed.prefetched(gpu_location(1)), 1);
      EXPECT_EQ(managed.prefetched(host), CU_DEVICE_CPU);
      const auto prefer = CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
      const auto preferred = CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
      EXPECT_EQ(managed.advised(prefer, gpu_location(1), preferred), 1);
      EXPECT_EQ(managed.advised(prefer, host, preferred), CU_DEVICE_CPU);
    }
    EXPECT_EQ(managed.advised(CU_MEM_ADVISE_SET_ACCESSED_BY, gpu_location(1),
                              CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY),
              1);
  }
}

TEST(CudaVersionedCalls, CopyInBatchesWhereTheDriverDoes) {
  for (const char* version : {"", "12.8", "12.2", "11.0"}) {
    SCOPED_TRACE(version);
    const FakeCudaLibrary library("memory=64M,devices=2", version);
    const Managed managed;
    const bool can = version == std::string() || version == std::string("12.8");
    EXPECT_EQ(takes_batches(managed.driver), can);
    if (!can) continue;
    std::array<char, 4> host = {'a', 'b', 'c', 'd'};
    const auto at = reinterpret_cast<CUdeviceptr>(host.data());
    std::array<CUdeviceptr, 2> there = {managed.address, managed.address + 2};
    std::array<CUdeviceptr, 2> crossed = {at + 2, at};
    std::array<std::size_t, 2> sizes = {2, 2};
    EXPECT_EQ(copy_batch(managed.driver, there, crossed, sizes, managed.stream), CUDA_SUCCESS);
    EXPECT_EQ(managed.driver.cuStreamSynchronize(managed.stream), CUDA_SUCCESS);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(managed.address), 4), "cdab");
  }
}

}  // namespace
}  // namespace headrace::cuda
