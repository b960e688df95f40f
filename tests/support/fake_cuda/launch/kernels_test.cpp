// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/launch/kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>

#include "backend/cuda/kernels.h"
#include "support/fake_cuda/api_testing.h"

namespace headrace::cuda::fake {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Loads the library's own PTX.
struct Loaded : FakeContext {
  explicit Loaded(const std::string& settings = "") : FakeContext(settings) {
    EXPECT_EQ(cuModuleLoadDataEx(&module, kKernelsPtx, 0, nullptr, nullptr), CUDA_SUCCESS);
  }

  // Returns the kernel's result after its end.
  template <class... Parameters>
  CUresult run(const char* name, Parameters... parameters) {
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, module, name), CUDA_SUCCESS) << name;
    std::array<void*, sizeof...(Parameters)> values = {&parameters...};
    const CUresult launched =
        cuLaunchKernel(function, 2, 1, 1, 128, 1, 1, 0, compute, values.data(), nullptr);
    return launched == CUDA_SUCCESS ? cuStreamSynchronize(compute) : launched;
  }

  CUmodule module = nullptr;
  CUstream compute = stream();
};

TEST(FakeKernels, EveryKernelOfTheLibraryIsThere) {
  Loaded cuda;
  for (const char* name :
       {kReadNarrow, kWriteNarrow, kReadWide, kWriteWide, kCopy, kGather, kChecksum, kChase}) {
    CUfunction function = nullptr;
    EXPECT_EQ(cuda.cuModuleGetFunction(&function, cuda.module, name), CUDA_SUCCESS) << name;
  }
  CUfunction function = nullptr;
  EXPECT_EQ(cuda.cuModuleGetFunction(&function, cuda.module, "other"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuda.cuModuleUnload(cuda.module), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuModuleUnload(cuda.module), CUDA_ERROR_INVALID_HANDLE);
}

TEST(FakeKernels, ReadsAndWrites) {
  Loaded cuda;
  char* const host = cuda.pinned(64);
  const auto data = reinterpret_cast<CUdeviceptr>(host);
  auto* const sum = reinterpret_cast<u32*>(cuda.pinned(4));
  const auto to = reinterpret_cast<CUdeviceptr>(sum);
  *sum = 0;
  ASSERT_EQ(cuda.run(kWriteNarrow, data, u64{16}, u32{100}), CUDA_SUCCESS);
  ASSERT_EQ(cuda.run(kReadNarrow, data, u64{16}, to), CUDA_SUCCESS);
  EXPECT_EQ(*sum, 16 * 100 + 15 * 16 / 2);
  ASSERT_EQ(cuda.run(kReadWide, data, u64{4}, to), CUDA_SUCCESS);
  EXPECT_EQ(*sum, 2 * (16 * 100 + 15 * 16 / 2));
  ASSERT_EQ(cuda.run(kWriteWide, data, u64{4}, u32{7}), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<u32*>(host)[15], 7U);
}

TEST(FakeKernels, OneCopyAndManyFromAList) {
  Loaded cuda;
  char* const from = cuda.pinned(64);
  char* const to = cuda.pinned(64);
  std::iota(from, from + 64, 'A');
  std::memset(to, '.', 64);
  const auto at = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
  ASSERT_EQ(cuda.run(kCopy, at(to), at(from + 1), u64{3}), CUDA_SUCCESS);
  EXPECT_EQ(std::string(to, 4), "BCD.");
  CopyList list{.count = 2};
  list.copies[0] = {.to = at(to + 48), .from = at(from), .bytes = 16};
  list.copies[1] = {.to = at(to + 16), .from = at(from + 32), .bytes = 32};
  list.copies[2] = {.to = at(to), .from = at(from), .bytes = 16};  // beyond the count
  ASSERT_EQ(cuda.run(kGather, list), CUDA_SUCCESS);
  EXPECT_EQ(std::string(to, 4), "BCD.");
  EXPECT_EQ(std::string(to + 16, 32), std::string(from + 32, 32));
  EXPECT_EQ(std::string(to + 48, 16), std::string(from, 16));
  list.copies[0].bytes = 8;
  EXPECT_EQ(cuda.run(kGather, list), CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST(FakeKernels, TheChecksumSeesBytesAndTheirOrder) {
  Loaded cuda;
  auto* const data = reinterpret_cast<u64*>(cuda.pinned(24));
  auto* const sum = reinterpret_cast<u64*>(cuda.pinned(8));
  const auto of = [&](u64 first, u64 second) {
    data[0] = first;
    data[1] = second;
    *sum = 0;
    EXPECT_EQ(cuda.run(kChecksum, reinterpret_cast<CUdeviceptr>(data), u64{2},
                       reinterpret_cast<CUdeviceptr>(sum)),
              CUDA_SUCCESS);
    return *sum;
  };
  const u64 one = of(1, 2);
  EXPECT_EQ(of(1, 2), one);
  EXPECT_NE(of(2, 1), one);
  EXPECT_NE(of(1, 3), one);
}

TEST(FakeKernels, AChaseFollowsItsPlaces) {
  Loaded cuda;
  auto* const next = reinterpret_cast<u64*>(cuda.pinned(4 * 8));
  next[0] = 2;
  next[2] = 3;
  next[3] = 1;
  next[1] = 0;
  auto* const end = reinterpret_cast<u64*>(cuda.pinned(8));
  ASSERT_EQ(cuda.run(kChase, reinterpret_cast<CUdeviceptr>(next), u64{0}, u64{3},
                     reinterpret_cast<CUdeviceptr>(end)),
            CUDA_SUCCESS);
  EXPECT_EQ(*end, 1U);
}

TEST(FakeKernels, WhatTheDeviceDoesNotReachLosesTheContext) {
  std::array<u32, 4> pageable{};
  const auto data = reinterpret_cast<CUdeviceptr>(pageable.data());
  {
    Loaded cuda("paradigm=hmm");
    EXPECT_EQ(cuda.run(kWriteNarrow, data, u64{4}, u32{1}), CUDA_SUCCESS);
    EXPECT_EQ(pageable[3], 4U);
    EXPECT_EQ(cuda.run(kWriteNarrow, data + 1, u64{4}, u32{1}), CUDA_ERROR_MISALIGNED_ADDRESS);
  }
  Loaded cuda;
  EXPECT_EQ(cuda.run(kWriteNarrow, data, u64{4}, u32{9}), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(pageable[3], 4U);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda.cuMemAlloc_v2(&address, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(FakeKernels, WrongLaunchesAreRefused) {
  Loaded cuda;
  CUfunction function = nullptr;
  ASSERT_EQ(cuda.cuModuleGetFunction(&function, cuda.module, kChase), CUDA_SUCCESS);
  const auto launch = [&](unsigned grid, unsigned block) {
    std::array<void*, 4> none{};
    return cuda.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, cuda.compute, none.data(),
                               nullptr);
  };
  EXPECT_EQ(launch(0, 32), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1025), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuda.cuModuleUnload(cuda.module), CUDA_SUCCESS);
  EXPECT_EQ(launch(1, 32), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace headrace::cuda::fake
