// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/allocations.h"

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

TEST(GpuAllocations, OfBothKindsAreTimedAndGivenBack) {
  const test::FakeGpu fake("memory=64M");
  for (const std::string_view by : {kPlaced, kHostAlloc}) {
    sample_of(prepare_allocation(on_fake(fake, {.by = by, .memory = kPinned, .bytes = 2_MiB})));
  }
}

TEST(GpuAllocations, ThatTheDriverRefusesSayWhy) {
  const test::FakeGpu fake("memory=64M,register_limit=1M");
  const auto probe =
      prepare_allocation(on_fake(fake, {.by = kPlaced, .memory = kPinned, .bytes = 2_MiB}));
  ASSERT_TRUE(probe);
  EXPECT_EQ((*probe)->sample().error().code, ErrorCode::exhausted);
}

}  // namespace
}  // namespace headrace::experiment_gpu
