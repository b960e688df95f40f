// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/managed/managed.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "backend/cuda/kernels.h"
#include "support/fake_cuda/api_testing.h"

namespace headrace::cuda::fake {
namespace {

constexpr std::size_t kPage = 64 << 10;

// Four pages of managed memory, on a device with memory for sixteen. The device's used memory shows
// where the pages are.
struct Managed : FakeContext {
  explicit Managed(const std::string& settings = "memory=1M") : FakeContext(settings) {
    EXPECT_EQ(cuMemAllocManaged(&address, 4 * kPage, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    CUmodule module = nullptr;
    EXPECT_EQ(cuModuleLoadDataEx(&module, kKernelsPtx, 0, nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetFunction(&read, module, kReadNarrow), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetFunction(&write, module, kWriteNarrow), CUDA_SUCCESS);
    *sum = 0;
  }

  void run(CUfunction function, CUdeviceptr data, std::size_t pages, std::uint64_t third) {
    std::uint64_t count = pages * kPage / 4;
    std::array<void*, 3> values = {&data, &count, &third};
    EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, queue, values.data(), nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(queue), CUDA_SUCCESS);
  }
  void device_reads(std::size_t pages) {
    run(read, address, pages, reinterpret_cast<CUdeviceptr>(sum));
  }
  void device_writes(std::size_t pages, std::uint32_t value) { run(write, address, pages, value); }

  std::size_t on_device() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    return (total - free) / kPage;
  }
  void advise_all(CUmem_advise advice, CUmemLocation location) {
    EXPECT_EQ(cuMemAdvise_v2(address, 4 * kPage, advice, location), CUDA_SUCCESS);
  }
  int attribute(CUmem_range_attribute what) {
    int value = -9;
    EXPECT_EQ(cuMemRangeGetAttribute(&value, sizeof value, what, address, 4 * kPage), CUDA_SUCCESS);
    return value;
  }
  std::uint32_t* host() const { return reinterpret_cast<std::uint32_t*>(address); }

  CUdeviceptr address = 0;
  CUfunction read = nullptr;
  CUfunction write = nullptr;
  CUstream queue = stream();
  std::uint32_t* sum = reinterpret_cast<std::uint32_t*>(pinned(4));
};

constexpr CUmemLocation kOnHost{CU_MEM_LOCATION_TYPE_HOST, 0};
constexpr CUmemLocation kOnDevice{CU_MEM_LOCATION_TYPE_DEVICE, 0};

TEST(FakeManaged, PagesGoWhereTheyAreTouched) {
  Managed cuda;
  EXPECT_EQ(cuda.on_device(), 0U);
  cuda.host()[0] = 40;
  cuda.device_reads(2);
  EXPECT_EQ(*cuda.sum, 40U);
  EXPECT_EQ(cuda.on_device(), 2U);
  cuda.device_writes(4, 5);
  EXPECT_EQ(cuda.on_device(), 4U);
  EXPECT_EQ(cuda.host()[0], 5U);  // the host's touch brings one back
  EXPECT_EQ(cuda.on_device(), 3U);
  EXPECT_EQ(cuda.cuMemFree_v2(cuda.address), CUDA_SUCCESS);
  EXPECT_EQ(cuda.on_device(), 0U);
}

TEST(FakeManaged, WhatPrefersTheHostStaysThere) {
  Managed cuda;
  cuda.advise_all(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kOnHost);
  cuda.host()[0] = 6;
  cuda.device_reads(4);
  EXPECT_EQ(*cuda.sum, 6U);
  EXPECT_EQ(cuda.on_device(), 0U);
  EXPECT_EQ(cuda.attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), CU_DEVICE_CPU);
  EXPECT_EQ(cuda.attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE),
            CU_MEM_LOCATION_TYPE_HOST);
  cuda.advise_all(CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, kOnHost);
  EXPECT_EQ(cuda.attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), CU_DEVICE_INVALID);
}

TEST(FakeManaged, WhatIsAccessedByTheDeviceIsMappedUntilItsCountersMoveIt) {
  for (const bool counters : {false, true}) {
    Managed cuda(counters ? "memory=1M,access_threshold=2" : "memory=1M");
    cuda.advise_all(CU_MEM_ADVISE_SET_ACCESSED_BY, kOnDevice);
    for (std::size_t page = 0; page < 4; ++page) cuda.host()[page * kPage / 4] = 1;
    cuda.device_reads(4);
    EXPECT_EQ(cuda.on_device(), 0U);
    cuda.device_reads(4);
    EXPECT_EQ(cuda.on_device(), counters ? 4U : 0U);
    EXPECT_EQ(*cuda.sum, 8U);
    std::array<int, 2> by{};
    ASSERT_EQ(cuda.cuMemRangeGetAttribute(by.data(), sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                                          cuda.address, kPage),
              CUDA_SUCCESS);
    EXPECT_EQ(by, (std::array{0, CU_DEVICE_INVALID}));
  }
}

TEST(FakeManaged, ReadMostlyPagesAreDuplicatedUntilTheyAreWritten) {
  Managed cuda;
  cuda.advise_all(CU_MEM_ADVISE_SET_READ_MOSTLY, kOnDevice);
  cuda.host()[0] = 3;
  cuda.device_reads(1);
  EXPECT_EQ(cuda.on_device(), 1U);
  EXPECT_EQ(cuda.host()[0], 3U);  // both have it
  EXPECT_EQ(cuda.on_device(), 1U);
  cuda.host()[0] = 4;
  EXPECT_EQ(cuda.on_device(), 0U);
  cuda.device_reads(1);
  EXPECT_EQ(*cuda.sum, 7U);
  EXPECT_EQ(cuda.attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 1);
}

TEST(FakeManaged, PrefetchedPagesAreThereBeforeTheyAreUsed) {
  Managed cuda;
  ASSERT_EQ(cuda.cuMemPrefetchAsync_v2(cuda.address, 3 * kPage, kOnDevice, 0, cuda.queue),
            CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamSynchronize(cuda.queue), CUDA_SUCCESS);
  EXPECT_EQ(cuda.on_device(), 3U);
  EXPECT_EQ(cuda.attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), CU_DEVICE_INVALID);
  ASSERT_EQ(cuda.cuMemPrefetchAsync(cuda.address, 4 * kPage, CU_DEVICE_CPU, cuda.queue),
            CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamSynchronize(cuda.queue), CUDA_SUCCESS);
  EXPECT_EQ(cuda.on_device(), 0U);
  EXPECT_EQ(cuda.attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), CU_DEVICE_CPU);
}

TEST(FakeManaged, MoreThanTheDeviceHoldsEvictsWhatCameFirst) {
  Managed cuda("memory=128K");
  cuda.device_writes(4, 1);
  EXPECT_EQ(cuda.on_device(), 2U);
  for (std::uint32_t i = 0; i < 4 * kPage / 4; i += kPage / 4) EXPECT_EQ(cuda.host()[i], 1 + i);
  EXPECT_EQ(cuda.on_device(), 0U);
}

TEST(FakeManaged, TheHostReachesPagesOfACoherentDevice) {
  Managed cuda("memory=1M,paradigm=ats");
  cuda.device_writes(4, 8);
  EXPECT_EQ(cuda.host()[1], 9U);
  EXPECT_EQ(cuda.on_device(), 4U);
}

TEST(FakeManaged, WrongAdviceIsRefused) {
  Managed cuda("devices=1");
  const auto advise = [&](CUmem_advise advice, CUmemLocation location) {
    return cuda.cuMemAdvise_v2(cuda.address, kPage, advice, location);
  };
  const CUmemLocation node{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  EXPECT_EQ(advise(CU_MEM_ADVISE_SET_ACCESSED_BY, node), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, node), CUDA_SUCCESS);
  EXPECT_EQ(advise(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, {CU_MEM_LOCATION_TYPE_DEVICE, 1}),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuda.cuMemAdvise(cuda.address, 5 * kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, 0),
            CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr device = cuda.device_memory(64);
  EXPECT_EQ(cuda.cuMemAdvise(device, 64, CU_MEM_ADVISE_SET_READ_MOSTLY, 0),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace headrace::cuda::fake
