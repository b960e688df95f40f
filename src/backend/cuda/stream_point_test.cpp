// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/stream_point.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string_view>
#include <thread>

#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/outcomes.h"

namespace headrace::cuda {
namespace {

std::uint64_t number(CUstream stream) { return reinterpret_cast<std::uintptr_t>(stream); }

// A stream of GPU 0 that stands still until it is released.
struct HeldStream {
  explicit HeldStream(const Context& context) : driver(context.driver()) {
    driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    driver.cuLaunchHostFunc(
        stream,
        [](void* flag) {
          while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
        },
        &released);
  }
  const Driver& driver;
  std::atomic<bool> released{false};
  CUstream stream = nullptr;
};

TEST(CudaStreamPoint, ComesWhenAllBeforeItIsDone) {
  const FakeCudaLibrary library;
  const auto context = *Context::of(**driver(), 0);
  const CurrentContext current(*context);
  HeldStream held(*context);
  const auto point = StreamPoint::of(context, number(held.stream));
  ASSERT_TRUE(point.has_value()) << point.error().message;
  EXPECT_FALSE((*point)->reached().has_value());
  held.released = true;
  std::optional<Status> reached;
  ASSERT_TRUE(test::eventually([&] {
    reached = (*point)->reached();
    return reached.has_value();
  }));
  EXPECT_TRUE(reached->has_value());
  const auto common = StreamPoint::of(context, 0);
  ASSERT_TRUE(common.has_value()) << common.error().message;
  EXPECT_TRUE(test::eventually([&] { return (*common)->reached().has_value(); }));
}

TEST(CudaStreamPoint, RefusesStreamsItCannotWaitFor) {
  const FakeCudaLibrary library("devices=2");
  Driver scripted = **driver();
  const auto other = *Context::of(scripted, 1);
  CUstream stream = nullptr;
  {
    const CurrentContext current(*other);
    ASSERT_EQ(scripted.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  const auto context = *Context::of(scripted, 0);
  const auto foreign = StreamPoint::of(context, number(stream));
  ASSERT_FALSE(foreign.has_value());
  EXPECT_EQ(foreign.error().code, ErrorCode::invalid);
  EXPECT_NE(foreign.error().message.find("another context"), std::string_view::npos);
  scripted.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  };
  const auto captured = StreamPoint::of(other, number(stream));
  ASSERT_FALSE(captured.has_value());
  EXPECT_NE(captured.error().message.find("captured"), std::string_view::npos);
  scripted.cuStreamIsCapturing = nullptr;
  EXPECT_TRUE(StreamPoint::of(other, number(stream)).has_value());
}

TEST(CudaStreamPoint, TellsThatTheGpuIsLost) {
  const FakeCudaLibrary library;
  Driver scripted = **driver();
  const auto context = *Context::of(scripted, 0);
  const auto point = StreamPoint::of(context, 0);
  ASSERT_TRUE(point.has_value());
  scripted.cuEventQuery = [](CUevent) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; };
  EXPECT_FALSE((*point)->reached().has_value());
  scripted.cuEventQuery = [](CUevent) { return CUDA_ERROR_ILLEGAL_ADDRESS; };
  const auto reached = (*point)->reached();
  ASSERT_TRUE(reached.has_value());
  EXPECT_FALSE(reached->has_value());
}

}  // namespace
}  // namespace headrace::cuda
