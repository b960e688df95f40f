// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/traffic/random_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace headrace::instruments {
namespace {

class RandomTrafficTest : public testing::TestWithParam<std::size_t> {
 protected:
  static constexpr std::size_t kBytes = 1 << 18;
  RandomTrafficTest() : memory_(kBytes + 4096) {
    std::size_t space = memory_.size();
    void* at = memory_.data();
    aligned_ = {static_cast<std::byte*>(std::align(4096, kBytes, at, space)), kBytes};
  }
  std::vector<std::byte> memory_;
  std::span<std::byte> aligned_;
};

TEST_P(RandomTrafficTest, ALapWritesEachLineOfItsPartAndNoOther) {
  for (const char* name : {"write", "nt_write", "1:1"}) {
    const Mix& mix = *find_mix(name);
    const RandomTraffic traffic(mix, GetParam());
    std::ranges::fill(aligned_, std::byte{0});
    const TrafficArea area = divide(mix, aligned_);
    const std::size_t rounds = traffic.rounds(area);
    EXPECT_EQ(rounds, area.to.size() / GetParam()) << "a power of two";
    std::size_t lines = 0;
    for (std::size_t at = 0; at < rounds; at += rounds / 4) {
      lines += traffic.run(area, at, rounds / 4);
    }
    traffic.finish();
    EXPECT_EQ(lines, rounds * mix.lines() * GetParam() / 64);
    const auto touched =
        std::ranges::count_if(aligned_, [](std::byte b) { return b != std::byte{0}; });
    EXPECT_EQ(static_cast<std::size_t>(touched), area.to.size()) << name;
    EXPECT_TRUE(std::ranges::all_of(area.to, [](std::byte b) { return b == std::byte{0x5a}; }));
  }
}

TEST_P(RandomTrafficTest, ReadsAndCountsWhatItReads) {
  const Mix& mix = *find_mix("3:1");
  const RandomTraffic traffic(mix, GetParam());
  const TrafficArea area = divide(mix, aligned_);
  const std::size_t rounds = traffic.rounds(area);
  ASSERT_GT(rounds, 0U);
  EXPECT_EQ(traffic.run(area, 0, rounds), rounds * 4 * GetParam() / 64);
}

// Also mixes of two parts, neither a power of two of the requested size.
TEST_P(RandomTrafficTest, AnAreaIsWalkedOverForAsMuchAsIsAskedFor) {
  for (const Bytes walked : {64_KiB, 512_KiB, 700_KiB, 1_MiB}) {
    for (const char* name : {"read", "write", "1:1", "2:1", "3:1", "nt_2:1", "7:3"}) {
      const Mix& mix = *find_mix(name);
      const Bytes bytes = random_area(mix, walked);
      std::vector<std::byte> memory(bytes.value);
      const RandomTraffic traffic(mix, GetParam());
      const std::size_t lap = traffic.rounds(divide(mix, memory)) * mix.lines() * GetParam();
      EXPECT_GE(lap, walked.value) << name;
      EXPECT_LE(bytes.value, 3 * walked.value) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, RandomTrafficTest, testing::Values(64U, 256U, 4096U));

}  // namespace
}  // namespace headrace::instruments
