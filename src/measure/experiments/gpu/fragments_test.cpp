// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/fragments.h"

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

GpuSetting setting_of(std::string_view direction, std::string_view by) {
  return {.direction = direction, .by = by, .memory = kPinned, .bytes = 64_KiB, .count = 16};
}

TEST(GpuFragments, GoBothWaysByACallForEachAndByHeadrace) {
  const test::FakeGpu fake("memory=32M");
  Random random(1);
  for (const std::string_view direction : {kToGpu, kFromGpu}) {
    for (const std::string_view by : {kEngine, kHeadrace}) {
      SCOPED_TRACE(by);
      const GpuSetting setting = on_fake(fake, setting_of(direction, by));
      const auto sample = sample_of(prepare_fragments(setting, random));
      EXPECT_GT(sample.details.at("cpu_s_per_gb"), 0);
    }
  }
}

TEST(GpuFragments, OfOddSizesAndNumbersArriveToo) {
  const test::FakeGpu fake("memory=32M");
  Random random(1);
  for (const std::uint64_t count : {1, 3, 5000}) {
    for (const Bytes bytes : {Bytes{1}, Bytes{777}}) {
      GpuSetting setting = on_fake(fake, setting_of(kToGpu, kHeadrace));
      setting.bytes = bytes;
      setting.count = count;
      sample_of(prepare_fragments(setting, random));
    }
  }
}

TEST(GpuFragments, AreTimedOnlyWhenTheyArrive) {
  const test::FakeGpu fake("memory=32M");
  Random random(1);
  const GpuSetting setting = on_fake(fake, setting_of(kToGpu, kEngine));
  cuda::Driver idle = setting.gpu->driver;
  idle.cuMemcpyAsync = [](cuda::CUdeviceptr, cuda::CUdeviceptr, std::size_t, cuda::CUstream) {
    return cuda::CUDA_SUCCESS;
  };
  const auto refused = prepare_fragments(by_driver(setting, idle), random);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("not what was sent"), std::string::npos);
}

TEST(GpuFragments, ThatDoNotFitSayWhy) {
  const test::FakeGpu fake("memory=8M");
  Random random(1);
  GpuSetting setting = on_fake(fake, setting_of(kToGpu, kHeadrace));
  setting.count = 1 << 10;
  const auto refused = prepare_fragments(setting, random);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
}

}  // namespace
}  // namespace headrace::experiment_gpu
