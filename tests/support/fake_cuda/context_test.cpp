// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/context.h"

#include <gtest/gtest.h>

#include "support/fake_cuda/api_testing.h"

namespace headrace::cuda::fake {
namespace {

TEST(FakeContexts, AreCurrentByThreadAndEndWithTheirLastRelease) {
  const Fake cuda("devices=2");
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  CUcontext current = nullptr;
  ASSERT_EQ(cuda.cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuCtxPushCurrent_v2(first), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuCtxPushCurrent_v2(second), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, second);
  ASSERT_EQ(cuda.cuCtxPopCurrent_v2(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, second);
  ASSERT_EQ(cuda.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cuda.cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuda.cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuCtxPushCurrent_v2(first), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuda.cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
}

TEST(FakeContexts, EventsAndStreamsOfTwoAreNotMixed) {
  FakeContext cuda("devices=2");
  CUcontext other = nullptr;
  ASSERT_EQ(cuda.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  const CUevent event = cuda.event();
  ASSERT_EQ(cuda.cuCtxPushCurrent_v2(other), CUDA_SUCCESS);
  const CUstream stream = cuda.stream();
  EXPECT_EQ(cuda.cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuda.cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  CUcontext its = nullptr;
  ASSERT_EQ(cuda.cuStreamGetCtx(stream, &its), CUDA_SUCCESS);
  EXPECT_EQ(its, other);
  EXPECT_EQ(cuda.cuCtxEnablePeerAccess(cuda.context, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuCtxEnablePeerAccess(cuda.context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  ASSERT_EQ(cuda.cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
}

TEST(FakeContexts, ALostOneAnswersEveryCallWithItsErrorUntilItIsMadeAnew) {
  FakeContext cuda("lost_after=2,lost_error=719");
  const CUdeviceptr device = cuda.device_memory(64);
  const CUstream stream = cuda.stream();
  const CUevent event = cuda.event();
  bool called = false;
  const auto call = [](void* data) { *static_cast<bool*>(data) = true; };
  ASSERT_EQ(cuda.cuMemsetD8Async(device, 1, 64, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuMemsetD8Async(device, 2, 64, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuLaunchHostFunc(stream, call, &called), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_FALSE(called);
  EXPECT_EQ(cuda.cuEventRecord(event, stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuda.cuMemFree_v2(device), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuda.cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuDevicePrimaryCtxRetain(&cuda.context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuCtxPushCurrent_v2(cuda.context), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST(FakeContexts, WhatStandsStillEndsWithItsContext) {
  const Fake cuda("stall_after=1");
  CUcontext context = nullptr;
  ASSERT_EQ(cuda.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
  CUstream stream = nullptr;
  CUdeviceptr device = 0;
  ASSERT_EQ(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuMemAlloc_v2(&device, 64), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuMemsetD8Async(device, 1, 64, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuMemsetD8Async(device, 1, 64, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda.cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

TEST(FakeContexts, FailuresComeFromTheSeed) {
  const auto run = [](const std::string& seed) {
    FakeContext cuda("fail=0.5,seed=" + seed);
    std::string outcomes;
    for (int i = 0; i < 32; ++i) {
      CUdeviceptr address = 0;
      const CUresult result = cuda.cuMemAlloc_v2(&address, 64);
      EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
      outcomes += result == CUDA_SUCCESS ? '.' : 'x';
    }
    return outcomes;
  };
  const std::string once = run("5");
  EXPECT_EQ(run("5"), once);
  EXPECT_NE(run("6"), once);
  EXPECT_NE(once.find('x'), std::string::npos);
  EXPECT_NE(once.find('.'), std::string::npos);
}

}  // namespace
}  // namespace headrace::cuda::fake
