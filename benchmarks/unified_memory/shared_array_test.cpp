// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/unified_memory/shared_array.h"

#include <gtest/gtest.h>

#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

struct Made {
  explicit Made(const UnifiedMemoryCase& asked)
      : driver(**cuda::driver()),
        device(cuda::find_devices(driver)->front()),
        gpu(*GpuSession::open(driver, device)),
        array(SharedArray::make(*Machine::discover(), *gpu, device, asked)) {}
  const cuda::Driver& driver;
  cuda::Device device;
  std::unique_ptr<GpuSession> gpu;
  Result<std::unique_ptr<SharedArray>> array;
};

TEST(SharedArray, ManagedMemoryTakesItsAdvice) {
  const test::FakeGpu fake("memory=64M,paradigm=managed");
  for (unsigned bits = 0; bits < 8; ++bits) {
    const UnifiedMemoryCase asked{.size = 2_MiB,
                                  .accessed_by = (bits & 1) != 0,
                                  .read_mostly = (bits & 2) != 0,
                                  .preferred_location_cpu = (bits & 4) != 0};
    const Made made(asked);
    ASSERT_TRUE(made.array) << made.array.error().message;
    EXPECT_EQ((*made.array)->advice_confirmed(asked), true) << bits;
    UnifiedMemoryCase other = asked;
    other.read_mostly = !other.read_mostly;
    EXPECT_EQ((*made.array)->advice_confirmed(other), false) << bits;
  }
}

TEST(SharedArray, AnOldDriverTakesTheSameAdvice) {
  const test::FakeGpu fake("memory=64M,paradigm=managed", "11.0");
  const UnifiedMemoryCase asked{.size = 2_MiB, .accessed_by = true, .preferred_location_cpu = true};
  const Made made(asked);
  ASSERT_EQ(made.driver.cuMemAdvise_v2, nullptr);
  ASSERT_TRUE(made.array) << made.array.error().message;
  EXPECT_EQ((*made.array)->advice_confirmed(asked), true);
}

TEST(SharedArray, MoreManagedMemoryThanTheGpuHasFreeIsRefused) {
  const test::FakeGpu fake("memory=16M,paradigm=managed");
  UnifiedMemoryCase asked{.size = 32_MiB};
  const Made refused(asked);
  ASSERT_FALSE(refused.array);
  EXPECT_EQ(refused.array.error().code, ErrorCode::exhausted);
  EXPECT_NE(refused.array.error().message.find("--oversubscribe"), std::string::npos);
  asked.size = 15_MiB;
  EXPECT_FALSE(Made(asked).array) << "an eighth of so small a GPU is spared";
  asked.size = 14_MiB;
  EXPECT_TRUE(Made(asked).array);
  asked.size = 32_MiB;
  asked.oversubscribe = true;
  EXPECT_TRUE(Made(asked).array);
}

TEST(SharedArray, HostMemoryIsForGpusThatReachIt) {
  const UnifiedMemoryCase asked{.size = 2_MiB, .managed = false};
  {
    const test::FakeGpu fake("paradigm=managed");
    const Made refused(asked);
    ASSERT_FALSE(refused.array);
    EXPECT_EQ(refused.array.error().code, ErrorCode::unsupported);
  }
  const test::FakeGpu fake("paradigm=ats");
  const Made made(asked);
  ASSERT_TRUE(made.array) << made.array.error().message;
  EXPECT_EQ((*made.array)->words().size(), (2_MiB).value / 4);
  EXPECT_EQ((*made.array)->advice_confirmed(asked), std::nullopt);
  const auto found = (*made.array)->residency();
  if (found) {
    EXPECT_EQ(found->total(), (2_MiB).value / 4096);
  }
}

}  // namespace
}  // namespace headrace
