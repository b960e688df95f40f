// SPDX-License-Identifier: Apache-2.0
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
    const session::Sample found = sample_of(prepare_copies(setting, random));
    EXPECT_GT(found.details.at("cpu_s_per_gb"), 0);
    return found;
  };
  for (const std::string_view direction : {kToGpu, kFromGpu}) {
    for (const std::string_view by : {kEngine, kKernel}) {
      for (const std::string_view memory : {kPinned, kPageable}) sample(direction, by, memory);
    }
  }
  const auto both = sample(kBoth, kEngine, kPinned);
  EXPECT_GT(both.details.at("to_gpu"), 0);
  EXPECT_GT(both.details.at("from_gpu"), 0);
  for (const std::string_view by : {kEngine, kKernel}) {
    sample(kInside, by, kDevice);
    sample(kAcross, by, kDevice);
  }
}

// A kernel that writes where it may not loses the context, and all later measurements.
TEST(GpuCopies, OfAKernelNeedGpusThatReachEachOther) {
  const test::FakeGpu fake("memory=32M,devices=2,sms=2");
  cuda::Driver apart = **cuda::driver();
  apart.cuDeviceCanAccessPeer = [](int* can, cuda::CUdevice, cuda::CUdevice) {
    *can = 0;
    return cuda::CUDA_SUCCESS;
  };
  Random random(1);
  const GpuSetting setting =
      on_fake(fake, {.direction = kAcross, .by = kKernel, .memory = kDevice, .bytes = 64_KiB});
  const auto refused = prepare_copies(by_driver(setting, apart), random);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported) << refused.error().message;
}

TEST(GpuCopies, PrefetchManagedMemory) {
  for (const char* version : {"", "11.0"}) {
    const test::FakeGpu fake("memory=32M", version);
    Random random(1);
    for (const std::string_view direction : {kToGpu, kFromGpu}) {
      const GpuSetting setting = on_fake(
          fake, {.direction = direction, .by = kPrefetch, .memory = kManaged, .bytes = 1_MiB});
      const auto sample = sample_of(prepare_prefetch(setting, random));
      EXPECT_GT(sample.details.at("cpu_s_per_gb"), 0);
    }
  }
}

// As on an H200, whose cache keeps 32 MiB, and as much of another area.
TEST(GpuCopies, WalkThroughMoreThanCachesKeep) {
  const test::FakeGpu fake("memory=4G,l2=50M,sms=2");
  static cuda::Driver whole;
  static std::size_t most;
  whole = **cuda::driver();
  most = 0;
  cuda::Driver noting = whole;
  noting.cuMemAlloc_v2 = [](cuda::CUdeviceptr* address, std::size_t bytes) {
    most = std::max(most, bytes);
    return whole.cuMemAlloc_v2(address, bytes);
  };
  Random random(1);
  const GpuSetting setting =
      on_fake(fake, {.direction = kInside, .by = kEngine, .memory = kDevice, .bytes = 1_MiB});
  const auto found = sample_of(prepare_copies(by_driver(setting, noting), random));
  EXPECT_GE(Bytes{most}, 200_MiB);
  EXPECT_EQ(found.details.at("l2_bytes"), 50 << 20);
}

void expect_not_what_was_sent(const test::FakeGpu& fake, const cuda::Driver& losing,
                              std::string_view direction) {
  Random random(1);
  const GpuSetting setting =
      on_fake(fake, {.direction = direction, .by = kEngine, .memory = kPinned, .bytes = 64_KiB});
  const auto lost = prepare_copies(by_driver(setting, losing), random);
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message.find("not what was sent"), std::string::npos)
      << lost.error().message;
}

TEST(GpuCopies, MissingBytes_GiveNoRate) {
  const test::FakeGpu fake("memory=32M");
  static cuda::Driver whole;
  whole = **cuda::driver();
  cuda::Driver losing = whole;
  // Excludes the single words that return sums.
  losing.cuMemcpyDtoHAsync_v2 = [](void* to, cuda::CUdeviceptr from, std::size_t bytes,
                                   cuda::CUstream stream) {
    return bytes > 8 ? cuda::CUDA_SUCCESS : whole.cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
  };
  expect_not_what_was_sent(fake, losing, kToGpu);
  losing = whole;
  losing.cuMemcpyHtoDAsync_v2 = [](cuda::CUdeviceptr, const void*, std::size_t, cuda::CUstream) {
    return cuda::CUDA_SUCCESS;
  };
  expect_not_what_was_sent(fake, losing, kFromGpu);
  losing = whole;
  losing.cuMemcpyDtoDAsync_v2 = [](cuda::CUdeviceptr, cuda::CUdeviceptr, std::size_t,
                                   cuda::CUstream) { return cuda::CUDA_SUCCESS; };
  expect_not_what_was_sent(fake, losing, kInside);
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
