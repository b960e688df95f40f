// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/copies.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "support/fake_cuda/api_testing.h"

namespace headrace::cuda::fake {
namespace {

// Reads bytes that a copy may be writing, which TSan rightly calls a race.
#if defined(__clang__)
__attribute__((no_sanitize("thread")))
#endif
char peek(const volatile char* at) {
  return *at;
}

TEST(FakeCopies, BytesGoToTheDeviceAndBack) {
  FakeContext cuda;
  const CUdeviceptr device = cuda.device_memory(4096);
  char* const from = cuda.pinned(4096);
  char* const to = cuda.pinned(4096);
  std::memset(from, 7, 4096);
  const CUstream stream = cuda.stream();
  ASSERT_EQ(cuda.cuMemcpyHtoDAsync_v2(device, from, 4096, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuMemsetD8Async(device, 9, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuMemcpyDtoHAsync_v2(to, device, 4096, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(to[0], 9);
  EXPECT_EQ(to[1], 7);
  EXPECT_EQ(to[4095], 7);
}

TEST(FakeCopies, NothingArrivesBeforeItsTime) {
  FakeContext cuda("latency=50ms");
  const CUdeviceptr device = cuda.device_memory(64);
  char* const to = cuda.pinned(64);
  const CUstream stream = cuda.stream();
  ASSERT_EQ(cuda.cuMemsetD8Async(device, 3, 64, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuMemcpyDtoHAsync_v2(to, device, 64, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(peek(to + 63), 0);
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(to[63], 3);
}

TEST(FakeCopies, PageableMemoryIsCopiedWithinTheCall) {
  FakeContext cuda("latency=5ms");
  const CUdeviceptr device = cuda.device_memory(64);
  const CUstream stream = cuda.stream();
  std::array<char, 64> bytes{};
  bytes.fill(5);
  ASSERT_EQ(cuda.cuMemcpyHtoDAsync_v2(device, bytes.data(), 64, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamQuery(stream), CUDA_SUCCESS);
  bytes.fill(0);
  ASSERT_EQ(cuda.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(bytes.data()), device, 64, stream),
            CUDA_SUCCESS);
  EXPECT_EQ(bytes[63], 5);
}

TEST(FakeCopies, WhatLeavesItsMemoryIsRefused) {
  FakeContext cuda;
  const CUdeviceptr device = cuda.device_memory(64);
  char* const host = cuda.pinned(64);
  const CUstream stream = cuda.stream();
  EXPECT_EQ(cuda.cuMemcpyHtoDAsync_v2(device + 32, host, 64, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.cuMemcpyDtoHAsync_v2(host + 1, device, 64, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.cuMemcpyHtoDAsync_v2(0, host, 64, stream), CUDA_ERROR_INVALID_VALUE);
  std::array<char, 64> pageable{};
  const auto address = reinterpret_cast<CUdeviceptr>(pageable.data());
  EXPECT_EQ(cuda.cuMemcpyHtoDAsync_v2(address, host, 64, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.cuMemcpyHtoDAsync_v2(device, host, 0, stream), CUDA_SUCCESS);
}

struct Batched : FakeContext {
  CUdeviceptr device = device_memory(256);
  char* host = pinned(256);
  std::array<CUdeviceptr, 2> to = {device, device + 128};
  std::array<CUdeviceptr, 2> from = {reinterpret_cast<CUdeviceptr>(host),
                                     reinterpret_cast<CUdeviceptr>(host + 128)};
  std::array<std::size_t, 2> sizes = {64, 128};
  CUmemcpyAttributes attributes{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  std::size_t first = 0;

  CUresult copy(CUstream on, std::size_t* failed) {
    return cuMemcpyBatchAsync(to.data(), from.data(), sizes.data(), 2, &attributes, &first, 1,
                              failed, on);
  }
};

TEST(FakeCopies, ABatchIsCopiedInBothItsAbis) {
  Batched cuda;
  const CUstream stream = cuda.stream();
  std::memset(cuda.host, 4, 256);
  std::size_t failed = 0;
  ASSERT_EQ(cuda.copy(stream, &failed), CUDA_SUCCESS);
  EXPECT_EQ(failed, SIZE_MAX);
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::memset(cuda.host, 0, 256);
  ASSERT_EQ(cuda.cuMemcpyBatchAsync_v2(cuda.from.data(), cuda.to.data(), cuda.sizes.data(), 2,
                                       &cuda.attributes, &cuda.first, 1, stream),
            CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.host[63], 4);
  EXPECT_EQ(cuda.host[64], 0);
  EXPECT_EQ(cuda.host[255], 4);
}

TEST(FakeCopies, ABatchSaysWhichCopyItRefuses) {
  Batched cuda;
  const CUstream stream = cuda.stream();
  std::size_t failed = 0;
  cuda.sizes[1] = 129;
  EXPECT_EQ(cuda.copy(stream, &failed), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, 1U);
  cuda.sizes[1] = 128;
  EXPECT_EQ(cuda.copy(nullptr, &failed), CUDA_ERROR_INVALID_VALUE);  // the legacy stream
  EXPECT_EQ(failed, SIZE_MAX);
  cuda.attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  EXPECT_EQ(cuda.copy(stream, &failed), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, SIZE_MAX);
}

}  // namespace
}  // namespace headrace::cuda::fake
