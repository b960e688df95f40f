// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/workspace.h"

#include <gtest/gtest.h>

#include "core/affinity.h"
#include "measure/instruments/worker_pool.h"
#include "tests/support/fake_gpu.h"

namespace headrace::experiment_gpu {
namespace {

using instruments::fill_randomly;

const Node& gpu_of(const Machine& machine) { return *machine.find(test::kGpu); }

TEST(GpuWorkspace, TakesAtMostAQuarterAndGivesAllBack) {
  const test::FakeGpu fake("memory=64M,devices=2");
  const auto target = GpuTarget::find(fake.machine, gpu_of(fake.machine)).value();
  const auto other = GpuTarget::find(fake.machine, *fake.machine.find(test::kOtherGpu)).value();
  Bytes quarter;
  const auto cpus = allowed_cpus();
  {
    const auto space = GpuWorkspace::open(target).value();
    const CpuSet near = instruments::usable_cpus(fake.machine.find(target->host));
    EXPECT_EQ(allowed_cpus(), near.empty() ? cpus : near);
    quarter = space->area(1_GiB, 1_MiB, 1).value();
    EXPECT_LE(quarter, 16_MiB);
    EXPECT_GE(quarter, 15_MiB);
    EXPECT_EQ(space->area(4_MiB, 1_MiB, 2).value(), 4_MiB);
    const auto none = space->area(32_MiB, 32_MiB, 1);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::exhausted);
    ASSERT_TRUE(space->on_gpu(quarter) && space->managed(1_MiB));
    ASSERT_TRUE(space->on_host(test::kDram, 1_MiB, true) && space->on_other(*other, 1_MiB));
    EXPECT_LT(*space->gpu().free_memory(), quarter * 4);
  }
  EXPECT_EQ(allowed_cpus(), cpus);
  EXPECT_EQ(GpuWorkspace::open(target).value()->area(1_GiB, 1_MiB, 1).value(), quarter);
}

TEST(GpuWorkspace, KnowsWhatCachesDoNotKeep) {
  const auto beyond = [](const char* settings, Bytes of_host) {
    test::FakeGpu fake(settings);
    fake.machine.caches = {{2, 1_MiB, {0}}, {3, of_host, {0, 1}}};
    return GpuTarget::find(fake.machine, gpu_of(fake.machine)).value()->beyond_caches();
  };
  EXPECT_EQ(beyond("memory=80G,l2=50M", 32_MiB), 256_MiB) << "4 of an H100's are 200";
  EXPECT_EQ(beyond("memory=80G,l2=50M", 114_MiB), 512_MiB);
  EXPECT_EQ(beyond("memory=80G,l2=50M", 504_MiB), 1_GiB);
  EXPECT_EQ(beyond("memory=80G,l2=1M", 2_MiB), 16_MiB);
  EXPECT_EQ(beyond("memory=1G,l2=50M", 32_MiB), 128_MiB) << "an eighth of its memory";
  const test::FakeGpu fake("l2=0");
  EXPECT_EQ(GpuTarget::find(fake.machine, gpu_of(fake.machine)).value()->l2(), std::nullopt);
}

TEST(GpuWorkspace, OfAGpuThatIsLostSaysSo) {
  const test::FakeGpu fake("memory=64M,lost_after=1");
  const auto target = GpuTarget::find(fake.machine, gpu_of(fake.machine)).value();
  {
    const auto space = GpuWorkspace::open(target).value();
    const TimedStream stream = space->stream().value();
    const auto memory = space->on_gpu(1_MiB).value();
    for (int i = 0; i < 3; ++i) {
      (void)space->driver().cuMemsetD8Async(memory, 0, 1, stream.stream);
    }
    (void)space->stop(stream);
    EXPECT_FALSE(space->wait(stream));
  }
  const auto lost = GpuWorkspace::open(target);
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message.find("was lost: CUDA_ERROR"), std::string::npos)
      << lost.error().message;
}

TEST(GpuWorkspace, TellsBytesAndTheirOrder) {
  std::vector<std::byte> memory(64);
  Random random(1);
  fill_randomly(memory, random);
  const std::uint64_t sum = checksum(memory);
  std::swap_ranges(memory.begin(), memory.begin() + 8, memory.begin() + 8);
  EXPECT_NE(checksum(memory), sum);
}

TEST(GpuWorkspace, SumsOnTheGpuAsOnTheHost) {
  const test::FakeGpu fake("memory=64M");
  const auto space =
      GpuWorkspace::open(GpuTarget::find(fake.machine, gpu_of(fake.machine)).value()).value();
  std::vector<std::byte> memory(4096 + 8);
  Random random(1);
  fill_randomly(memory, random);
  const auto address = space->on_gpu(Bytes{memory.size()}).value();
  ASSERT_TRUE(test::copy_with_gpu(address, memory.data(), memory.size(), true));
  EXPECT_EQ(space->checksum_of(address, Bytes{memory.size()}).value(), checksum(memory));
  EXPECT_NE(space->checksum_of(address, 4_KiB).value(), checksum(memory));
}

}  // namespace
}  // namespace headrace::experiment_gpu
