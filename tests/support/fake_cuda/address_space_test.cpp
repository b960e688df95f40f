// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/address_space.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "support/fake_cuda/api_testing.h"

namespace headrace::cuda::fake {
namespace {

// Whether the host can read there; the kernel checks it, so that nothing faults.
bool host_reads(CUdeviceptr address) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const bool read = write(ends[1], reinterpret_cast<const void*>(address), 1) == 1;
  if (!read) {
    EXPECT_EQ(errno, EFAULT);
  }
  close(ends[0]);
  close(ends[1]);
  return read;
}

TEST(FakeMemory, OfADeviceIsOutOfTheHostsReach) {
  FakeContext cuda;
  const CUdeviceptr device = cuda.device_memory(64);
  EXPECT_FALSE(host_reads(device));
  EXPECT_TRUE(host_reads(reinterpret_cast<CUdeviceptr>(cuda.pinned(64))));
}

TEST(FakeMemory, IsCountedAndFreedOnce) {
  FakeContext cuda("memory=1M");
  std::size_t free = 0;
  std::size_t total = 0;
  const CUdeviceptr device = cuda.device_memory(1000);
  ASSERT_EQ(cuda.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 1U << 20);
  EXPECT_EQ(free, total - 1024);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuda.cuMemAlloc_v2(&more, 1 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuda.cuMemAlloc_v2(&more, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.cuMemFree_v2(device + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.cuMemFree_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuMemFree_v2(device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.cuMemFree_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuMemAlloc_v2(&more, 1 << 20), CUDA_SUCCESS);
  char* const pinned = cuda.pinned(64);
  EXPECT_EQ(cuda.cuMemFreeHost(pinned), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
}

TEST(FakeMemory, IsFreedWhenTheCopiesOfItAreDone) {
  FakeContext cuda("latency=20ms");
  const CUdeviceptr device = cuda.device_memory(64);
  char* const host = cuda.pinned(64);
  const CUstream stream = cuda.stream();
  ASSERT_EQ(cuda.cuMemcpyHtoDAsync_v2(device, host, 64, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuMemFree_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST(FakeMemory, IsRegisteredOnce) {
  FakeContext cuda;
  std::vector<char> bytes(8192);
  const auto add = [&](std::size_t from, std::size_t size) {
    return cuda.cuMemHostRegister_v2(bytes.data() + from, size, CU_MEMHOSTREGISTER_PORTABLE);
  };
  EXPECT_EQ(add(1000, 2000), CUDA_SUCCESS);
  for (const std::size_t from : {0UL, 1000UL, 2999UL}) {
    EXPECT_EQ(add(from, 1001), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) << from;
  }
  EXPECT_EQ(add(3000, 5000), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuMemHostUnregister(bytes.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuda.cuMemHostUnregister(bytes.data() + 1000), CUDA_SUCCESS);
  EXPECT_EQ(add(1000, 2000), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuMemHostRegister_v2(nullptr, 64, 0), CUDA_ERROR_INVALID_VALUE);
  const auto unmapped = reinterpret_cast<void*>(4096);
  EXPECT_EQ(cuda.cuMemHostRegister_v2(unmapped, 4096, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(FakeMemory, ATooLargeRegistrationFailsTwice) {
  FakeContext cuda("register_limit=8K");
  std::vector<char> bytes(8192);
  EXPECT_EQ(cuda.cuMemHostRegister_v2(bytes.data(), 8192, 0), CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(cuda.cuMemGetInfo_v2(&free, &total), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuda.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuMemHostRegister_v2(bytes.data(), 8191, 0), CUDA_SUCCESS);
}

TEST(FakeMemory, PointersTellWhatTheyAre) {
  FakeContext cuda;
  const CUdeviceptr device = cuda.device_memory(64);
  const auto pinned = reinterpret_cast<CUdeviceptr>(cuda.pinned(64));
  unsigned type = 0;
  ASSERT_EQ(cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 8),
            CUDA_SUCCESS);
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  ASSERT_EQ(cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned),
            CUDA_SUCCESS);
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  CUdeviceptr start = 0;
  ASSERT_EQ(cuda.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, device + 8),
            CUDA_SUCCESS);
  EXPECT_EQ(start, device);
  EXPECT_EQ(cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       reinterpret_cast<CUdeviceptr>(&type)),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace headrace::cuda::fake
