// SPDX-License-Identifier: Apache-2.0
#include "place/shares.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace headrace {
namespace {

const std::vector<EngineId> kThree = {EngineId{4}, EngineId{5}, EngineId{7}};

TEST(SharesTest, TheLastTakesWhatRoundingLeaves) {
  const std::vector<Bytes> shares = {10_KiB, 9_KiB, 1_KiB};
  const auto parts = cut(20_KiB + 1_B, kThree, shares);
  EXPECT_EQ(parts,
            (std::vector<RoutePart>{
                {0, 8_KiB, kThree[0]}, {8192, 8_KiB, kThree[1]}, {16384, 4_KiB + 1_B, kThree[2]}}));
}

TEST(SharesTest, EmptyPartsAreLeftOut) {
  const std::vector<Bytes> shares = {1_KiB, 64_KiB, 1_KiB};
  EXPECT_EQ(cut(8_KiB, kThree, shares), (std::vector<RoutePart>{{0, 8_KiB, kThree[1]}}));
  EXPECT_TRUE(cut(0_B, kThree, shares).empty());
  EXPECT_TRUE(cut_equally(0_B, kThree).empty());
}

TEST(SharesTest, EqualSharesOfFewPages) {
  EXPECT_EQ(cut_equally(100_B, kThree), (std::vector<RoutePart>{{0, 100_B, kThree[2]}}));
  EXPECT_EQ(cut_equally(8_KiB + 1_B, kThree),
            (std::vector<RoutePart>{{0, 4_KiB, kThree[0]}, {4096, 4_KiB + 1_B, kThree[1]}}));
}

TEST(SharesTest, EqualSharesDifferByLessThanTheEngines) {
  EXPECT_TRUE(rc::check([] {
    const Bytes bytes{*rc::gen::inRange<std::uint64_t>(64 * 4096, 1 << 24)};
    const auto parts = cut_equally(bytes, kThree);
    RC_ASSERT(parts.size() == 3u);
    RC_ASSERT(parts[0].length == parts[1].length);
    RC_ASSERT(parts[2].length < parts[0].length + kShareUnit);
    RC_ASSERT(parts[2].length + kShareUnit * 3 > parts[0].length);
  }));
}

}  // namespace
}  // namespace headrace
