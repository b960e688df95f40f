// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/batches.h"

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

TEST(GpuBatches, ArriveByEachWayOfHandingOver) {
  for (const char* version : {"", "12.8"}) {
    const test::FakeGpu fake("memory=64M,sms=2", version);
    Random random(1);
    for (const std::string_view direction : {kToGpu, kFromGpu}) {
      for (const std::string_view by : {kEngine, kBatch, kKernel}) {
        SCOPED_TRACE(std::string(direction) + " " + std::string(by));
        const GpuSetting setting = on_fake(
            fake,
            {.direction = direction, .by = by, .memory = kPinned, .bytes = 4_KiB, .count = 16});
        const auto sample = sample_of(prepare_batches(setting, random));
        EXPECT_GT(sample.details.at("bandwidth"), 0);
        EXPECT_GT(sample.details.at("cpu_s_per_gb"), 0);
      }
    }
  }
}

TEST(GpuBatches, MissingCopy_GivesNoCost) {
  const test::FakeGpu fake("memory=64M");
  static cuda::Driver whole;
  static int calls;
  whole = **cuda::driver();
  calls = 0;
  cuda::Driver losing = whole;
  losing.cuMemcpyAsync = [](cuda::CUdeviceptr to, cuda::CUdeviceptr from, std::size_t bytes,
                            cuda::CUstream stream) {
    return ++calls == 8 ? cuda::CUDA_SUCCESS : whole.cuMemcpyAsync(to, from, bytes, stream);
  };
  Random random(1);
  const GpuSetting setting = on_fake(
      fake, {.direction = kToGpu, .by = kEngine, .memory = kPinned, .bytes = 4_KiB, .count = 16});
  const auto lost = prepare_batches(by_driver(setting, losing), random);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::io);
}

TEST(GpuBatches, OfMoreCopiesThanOneLaunchTakesAreGatheredToo) {
  const test::FakeGpu fake("memory=64M,sms=2");
  Random random(1);
  const GpuSetting setting = on_fake(
      fake, {.direction = kToGpu, .by = kKernel, .memory = kPinned, .bytes = 16_B, .count = 3000});
  sample_of(prepare_batches(setting, random));
}

TEST(GpuBatches, AreGatheredBy16Bytes) {
  EXPECT_TRUE(gathers(16_B));
  EXPECT_FALSE(gathers(24_B));
}

}  // namespace
}  // namespace headrace::experiment_gpu
