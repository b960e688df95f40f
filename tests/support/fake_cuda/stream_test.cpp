// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/fake_cuda/api_testing.h"

namespace headrace::cuda::fake {
namespace {

// A host function that blocks its stream until the gate is opened.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> passed{0};

  static void wait(void* gate) {
    auto& self = *static_cast<Gate*>(gate);
    self.open.wait(false);
    ++self.passed;
  }
  void let_go() {
    open = true;
    open.notify_all();
  }
};

TEST(FakeStreams, AreNotAskedWhileAnotherThreadCaptures) {
  FakeContext cuda("capturing=1");
  void* host = nullptr;
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda.cuMemAlloc_v2(&address, 512), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuda.cuMemHostAlloc(&host, 512, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuda.cuStreamQuery(nullptr), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  for (CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    EXPECT_EQ(cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuMemAlloc_v2(&address, 512), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamQuery(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuMemFree_v2(address), CUDA_SUCCESS);
  }
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  EXPECT_EQ(cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuMemFree_v2(0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST(FakeStreams, OperationsRunInOrder) {
  FakeContext cuda;
  char* const host = cuda.pinned(1);
  const auto address = reinterpret_cast<CUdeviceptr>(host);
  const CUstream stream = cuda.stream();
  Gate gate;
  ASSERT_EQ(cuda.cuLaunchHostFunc(stream, Gate::wait, &gate), CUDA_SUCCESS);
  for (unsigned char i = 1; i <= 9; ++i) cuda.cuMemsetD8Async(address, i, 1, stream);
  EXPECT_EQ(cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(host[0], 0);
  gate.let_go();
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(host[0], 9);
}

TEST(FakeStreams, AnEventOrdersTwoStreams) {
  FakeContext cuda;
  const CUstream first = cuda.stream();
  const CUstream second = cuda.stream();
  const CUevent event = cuda.event();
  Gate gate;
  EXPECT_EQ(cuda.cuEventQuery(event), CUDA_SUCCESS);  // never recorded
  ASSERT_EQ(cuda.cuLaunchHostFunc(first, Gate::wait, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda.cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  gate.let_go();
  ASSERT_EQ(cuda.cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(gate.passed, 1);
  EXPECT_EQ(cuda.cuEventSynchronize(event), CUDA_SUCCESS);
}

TEST(FakeStreams, TheLegacyStreamTakesTurnsWithBlockingOnesOnly) {
  FakeContext cuda;
  const CUstream blocking = cuda.stream(CU_STREAM_DEFAULT);
  const CUstream other = cuda.stream(CU_STREAM_NON_BLOCKING);
  // Each notes the number of gates that were passed when it ran.
  struct Note {
    Gate& gate;
    int passed = -1;
    static void take(void* note) {
      auto& self = *static_cast<Note*>(note);
      self.passed = self.gate.passed;
    }
  };
  Gate gate;
  Note behind{gate};
  Note beside{gate};
  ASSERT_EQ(cuda.cuLaunchHostFunc(nullptr, Gate::wait, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuLaunchHostFunc(blocking, Note::take, &behind), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuLaunchHostFunc(other, Note::take, &beside), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamSynchronize(other), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a wrong call returns
  gate.let_go();
  EXPECT_EQ(cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(behind.passed, 1);
  EXPECT_EQ(beside.passed, 0);
}

TEST(FakeStreams, EachThreadHasADefaultStreamOfItsOwn) {
  FakeContext cuda;
  const auto own = reinterpret_cast<CUstream>(2);  // CU_STREAM_PER_THREAD
  Gate gate;
  ASSERT_EQ(cuda.cuLaunchHostFunc(own, Gate::wait, &gate), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamQuery(own), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda.cuStreamDestroy_v2(own), CUDA_ERROR_INVALID_HANDLE);
  CUresult other = CUDA_ERROR_NOT_READY;
  std::thread([&] {
    EXPECT_EQ(cuda.cuCtxPushCurrent_v2(cuda.context), CUDA_SUCCESS);
    other = cuda.cuStreamQuery(own);
    EXPECT_EQ(cuda.cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(other, CUDA_SUCCESS);
  gate.let_go();
  EXPECT_EQ(cuda.cuStreamSynchronize(own), CUDA_SUCCESS);
  EXPECT_EQ(gate.passed, 1);
}

TEST(FakeStreams, ElapsedTimeIsBetweenTwoTimedEvents) {
  FakeContext cuda("latency=3ms");
  const CUdeviceptr device = cuda.device_memory(64);
  char* const host = cuda.pinned(64);
  const CUstream stream = cuda.stream();
  const CUevent begin = cuda.event();
  const CUevent end = cuda.event();
  const CUevent untimed = cuda.event(CU_EVENT_DISABLE_TIMING);
  float time = 0;
  EXPECT_EQ(cuda.cuEventElapsedTime(&time, begin, end), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cuda.cuEventRecord(begin, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuMemcpyHtoDAsync_v2(device, host, 64, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuEventRecord(end, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuEventElapsedTime(&time, begin, end), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuda.cuEventSynchronize(end), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuEventElapsedTime(&time, begin, end), CUDA_SUCCESS);
  EXPECT_GE(time, 3.0F);
  ASSERT_EQ(cuda.cuEventRecord(untimed, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuEventElapsedTime(&time, begin, untimed), CUDA_ERROR_INVALID_HANDLE);
}

TEST(FakeStreams, WhatWasDestroyedIsNoHandleAnyMore) {
  FakeContext cuda;
  const CUstream stream = cuda.stream();
  const CUevent event = cuda.event();
  Gate gate;
  ASSERT_EQ(cuda.cuLaunchHostFunc(stream, Gate::wait, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamDestroy_v2(stream), CUDA_SUCCESS);  // does not wait
  EXPECT_EQ(cuda.cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuda.cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cuda.cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  gate.let_go();
  EXPECT_EQ(cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(gate.passed, 1);  // the enqueued work is done
}

TEST(FakeStreams, AFunctionOfTheHostMayCallNothing) {
  FakeContext cuda;
  struct Call {
    FakeContext& cuda;
    CUresult result = CUDA_SUCCESS;
  } call{cuda};
  const CUstream stream = cuda.stream();
  const auto query = [](void* data) {
    auto& mine = *static_cast<Call*>(data);
    mine.result = mine.cuda.cuCtxSynchronize();
  };
  ASSERT_EQ(cuda.cuLaunchHostFunc(stream, query, &call), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(call.result, CUDA_ERROR_NOT_PERMITTED);
}

}  // namespace
}  // namespace headrace::cuda::fake
