// SPDX-License-Identifier: Apache-2.0
#include "memory/touch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <numeric>

#include "headrace/buffer.h"

namespace headrace {
namespace {

CpuSet cpus(unsigned count) {
  CpuSet set(count);
  std::iota(set.begin(), set.end(), 0U);
  return set;
}

TEST(TouchThreads, GrowWithTheWorkAndStopAtTheCpus) {
  const auto threads = [](Bytes bytes, unsigned group_cpus, unsigned all) {
    const TouchGroup group{cpus(group_cpus), {{0, bytes.value, 0}}};
    return touch_threads({&group, 1}, all).front();
  };
  EXPECT_EQ(threads(0_B, 4, 8), 0U);
  EXPECT_EQ(threads(1_B, 4, 8), 1U);
  EXPECT_EQ(threads(kTouchGrain * 3, 4, 8), 3U);
  EXPECT_EQ(threads(64_GiB, 4, 8), 4U);
  EXPECT_EQ(threads(64_GiB, 100, 8), 8U);
  EXPECT_EQ(threads(64_GiB, 0, 8), 1U) << "unknown CPUs: one thread";
}

TEST(TouchThreads, ShareFewCpusAmongManyGroups) {
  std::vector<TouchGroup> groups(16, {cpus(4), {{0, (1_GiB).value, 0}}});
  groups[3].runs.clear();
  const auto threads = touch_threads(groups, 30);
  EXPECT_LE(std::accumulate(threads.begin(), threads.end(), 0U), 30U);
  for (std::size_t i = 0; i < groups.size(); ++i) EXPECT_EQ(threads[i], i == 3 ? 0U : 2U);
}

class Touch : public testing::Test {
 protected:
  static constexpr Bytes kSize = 40_MiB;
  Touch()
      : memory_(static_cast<std::byte*>(::mmap(nullptr, kSize.value, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    ::madvise(memory_, kSize.value, MADV_NOHUGEPAGE);
  }
  ~Touch() override { ::munmap(memory_, kSize.value); }

  std::uint64_t absent(std::uint64_t from, std::uint64_t length) const {
    return where({memory_ + from, length}).value().absent;
  }

  std::byte* const memory_;
};

TEST_F(Touch, TouchesAllRunsAndNothingElse) {
  const std::uint64_t half = kSize.value / 2;
  const std::vector<TouchGroup> groups = {
      {cpus(1), {{0, 8192, 0}, {half, half, 0}}},
      {{}, {{65536, 4096, 1}}},
      {{4000}, {{131072, 4096, 1}}},  // an absent CPU: any thread touches it
  };
  EXPECT_EQ(touch(memory_, groups, 4_KiB), 0);
  EXPECT_EQ(absent(0, 8192), 0U);
  EXPECT_EQ(absent(half, half), 0U);
  EXPECT_EQ(absent(65536, 4096), 0U);
  EXPECT_EQ(absent(131072, 4096), 0U);
  EXPECT_EQ(absent(0, half), half / 4096 - 4);
}

TEST_F(Touch, ReportsAFailure) {
  ASSERT_EQ(::munmap(memory_ + kSize.value / 2, 4096), 0);
  const TouchGroup group{cpus(2), {{0, kSize.value, 0}}};
  EXPECT_EQ(touch(memory_, {&group, 1}, 4_KiB), ENOMEM);
}

}  // namespace
}  // namespace headrace
