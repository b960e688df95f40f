#include "measure/experiments/gpu/copies.h"

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

TEST(GpuCopies, GoEveryWay) {
  const test::FakeGpu fake("memory=32M,devices=2,paradigm=ats,sms=2");
  Random random(1);
  const auto sample = [&](std::string_view direction, std::string_view by,
                          std::string_view memory) {
    SCOPED_TRACE(std::string(direction) + " " + std::string(by) + " " + std::string(memory));
    const GpuSetting setting =
        on_fake(fake, {.direction = direction, .by = by, .memory = memory, .bytes = 256_KiB});
    return sample_of(prepare_copies(setting, random));
  };
  for (const std::string_view direction : {kToGpu, kFromGpu}) {
    for (const std::string_view by : {kEngine, kKernel}) {
      for (const std::string_view memory : {kPinned, kPageable}) sample(direction, by, memory);
    }
  }
  const auto both = sample(kBoth, kEngine, kPinned);
  EXPECT_GT(both.details.at("to_gpu"), 0);
  EXPECT_GT(both.details.at("from_gpu"), 0);
  sample(kInside, kEngine, kDevice);
  sample(kAcross, kEngine, kDevice);
}

TEST(GpuCopies, PrefetchManagedMemory) {
  for (const char* version : {"", "11.0"}) {
    const test::FakeGpu fake("memory=32M", version);
    Random random(1);
    for (const std::string_view direction : {kToGpu, kFromGpu}) {
      const GpuSetting setting = on_fake(
          fake, {.direction = direction, .by = kPrefetch, .memory = kManaged, .bytes = 1_MiB});
      sample_of(prepare_prefetch(setting, random));
    }
  }
}

TEST(GpuCopies, ThatDoNotArriveHaveNoRate) {
  const test::FakeGpu fake("memory=32M");
  static cuda::Driver losing;
  losing = **cuda::driver();
  losing.cuMemcpyDtoHAsync_v2 = [](void*, cuda::CUdeviceptr, std::size_t, cuda::CUstream) {
    return cuda::CUDA_SUCCESS;
  };
  Random random(1);
  GpuSetting setting =
      on_fake(fake, {.direction = kToGpu, .by = kEngine, .memory = kPinned, .bytes = 64_KiB});
  const std::shared_ptr<GpuTarget> made = setting.gpu;
  const GpuTarget& right = *made;
  setting.gpu = std::shared_ptr<GpuTarget>(new GpuTarget{.machine = right.machine,
                                                         .node = right.node,
                                                         .driver = losing,
                                                         .device = right.device,
                                                         .host = right.host});
  const auto lost = prepare_copies(setting, random);
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message.find("not what was sent"), std::string::npos);
}

TEST(GpuCopies, LargerThanAQuarterOfTheGpuAreRefused) {
  const test::FakeGpu fake("memory=32M");
  Random random(1);
  const GpuSetting setting =
      on_fake(fake, {.direction = kToGpu, .by = kEngine, .memory = kPinned, .bytes = 16_MiB});
  const auto refused = prepare_copies(setting, random);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_NE(refused.error().message.find("a quarter"), std::string::npos);
}

TEST(GpuCopies, OfAGpuThatIsLostFail) {
  const test::FakeGpu fake("memory=32M,lost_after=100");
  Random random(1);
  const GpuSetting setting =
      on_fake(fake, {.direction = kToGpu, .by = kEngine, .memory = kPinned, .bytes = 4_KiB});
  const auto lost = prepare_copies(setting, random);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::io) << lost.error().message;
}

}  // namespace
}  // namespace headrace::experiment_gpu
