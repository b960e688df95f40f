// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/gpu/gpu_session.h"

#include <gtest/gtest.h>

#include "tests/support/fake_cuda/fake_library.h"

namespace headrace {
namespace {

std::unique_ptr<GpuSession> open_first() {
  const cuda::Driver& driver = **cuda::driver();
  const auto devices = cuda::find_devices(driver);
  return *GpuSession::open(driver, devices->front());
}

TEST(GpuSession, LeavesNothingOnTheGpu) {
  const FakeCudaLibrary library("memory=64M");
  Bytes before, during;
  {
    const auto session = open_first();
    before = *session->free_memory();
    ASSERT_TRUE(session->word() && session->stream() && session->event());
    ASSERT_TRUE(session->kernel(cuda::kReadNarrow));
    during = *session->free_memory();
  }
  EXPECT_LT(during, before);
  EXPECT_EQ(*open_first()->free_memory(), before);
  cuda::CUcontext current = nullptr;
  (*cuda::driver())->cuCtxGetCurrent(&current);
  EXPECT_EQ(current, nullptr);
}

TEST(GpuSession, SaysWhatFailed) {
  const FakeCudaLibrary library;
  const auto session = open_first();
  const auto kernel = session->kernel("headrace_no_such");
  ASSERT_FALSE(kernel);
  EXPECT_NE(kernel.error().message.find("CUDA_ERROR_NOT_FOUND"), std::string::npos);
}

TEST(GpuSession, TellsHowManyBlocksRunAtOnceWhereTheDriverDoes) {
  const FakeCudaLibrary library;
  cuda::Driver older = **cuda::driver();
  const auto devices = cuda::find_devices(older);
  const auto session = *GpuSession::open(older, devices->front());
  const auto blocks = [&](const char* kernel) {
    return session->resident_blocks(*session->kernel(kernel), 256).value();
  };
  EXPECT_EQ(blocks(cuda::kReadWide), 4U) << "by registers";
  EXPECT_EQ(blocks(cuda::kWriteWide), 8U) << "by threads";
  older.cuOccupancyMaxActiveBlocksPerMultiprocessor = nullptr;
  EXPECT_EQ(blocks(cuda::kReadWide), std::nullopt);
}

TEST(GpuSession, WaitsNoLongerThanItsBound) {
  const FakeCudaLibrary library("stall_after=1");
  const auto session = open_first();
  const auto stream = session->stream();
  const auto event = session->event();
  const auto word = session->word();
  ASSERT_TRUE(stream && event && word);
  for (int i = 0; i < 4; ++i) session->driver().cuMemsetD8Async(*word, 0, 4, *stream);
  ASSERT_EQ(session->driver().cuEventRecord(*event, *stream), cuda::CUDA_SUCCESS);
  EXPECT_FALSE(session->stuck());
  const auto waited = session->wait(*event, std::chrono::milliseconds{20});
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::timed_out);
  EXPECT_TRUE(session->stuck());
}

}  // namespace
}  // namespace headrace
