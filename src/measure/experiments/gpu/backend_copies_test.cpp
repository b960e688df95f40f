#include "measure/experiments/gpu/backend_copies.h"

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

TEST(GpuBackendCopies, GoBothWaysPinnedAndNot) {
  const test::FakeGpu fake("memory=32M");
  Random random(1);
  for (const std::string_view direction : {kToGpu, kFromGpu}) {
    for (const std::string_view memory : {kPinned, kPageable}) {
      const GpuSetting setting = on_fake(
          fake, {.direction = direction, .by = kHeadrace, .memory = memory, .bytes = 256_KiB});
      sample_of(prepare_backend(setting, random));
    }
  }
}

TEST(GpuBackendCopies, NeedAnEngine) {
  test::FakeGpu fake("memory=32M");
  std::erase_if(fake.machine.engines,
                [](const Engine& each) { return each.kind == EngineKind::gpu; });
  Random random(1);
  const GpuSetting setting =
      on_fake(fake, {.direction = kToGpu, .by = kHeadrace, .memory = kPinned, .bytes = 4_KiB});
  const auto refused = prepare_backend(setting, random);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace::experiment_gpu
