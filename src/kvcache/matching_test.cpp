// SPDX-License-Identifier: Apache-2.0
#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

TEST(KvMatch, FindsTheLeadingBlocksAndTheirTiers) {
  KvRig rig;
  rig.open({2}, 8);
  const auto all = tokens(4 * 5);
  const auto keys = kvcache::keys(rig.geometry, all);
  for (const std::size_t i : {0, 1, 2, 4}) {
    ASSERT_TRUE(rig.put(std::span(keys).subspan(i, 1)).has_value());
    rig.settle();
  }
  const kvcache::Match match = rig.store->match(std::span<const std::uint32_t>(all));
  ASSERT_EQ(match.size(), 3u);  // the fourth is missing
  EXPECT_EQ(match.tiers()[0], 1u);
  EXPECT_EQ(match.tiers()[2], 0u);
  EXPECT_EQ(match.keys()[1], keys[1]);
  EXPECT_EQ(rig.store->stats().matched, 3u);
  EXPECT_EQ(rig.store->stats().missed, 2u);
}

TEST(KvMatch, HoldsBlocksUntilItGoes) {
  KvRig rig;
  rig.open({2});
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  ASSERT_TRUE(rig.put(std::span(keys).first(2)).has_value());
  kvcache::Match match = rig.store->match(keys);
  ASSERT_EQ(match.size(), 2u);
  EXPECT_EQ(rig.put(std::span(keys).subspan(2))->refused, 2u);
  kvcache::Match moved = std::move(match);
  EXPECT_EQ(match.size(), 0u);
  EXPECT_EQ(rig.store->match(keys).size(), 2u);
  EXPECT_EQ(rig.store->stats().pinned, rig.geometry.block() * 2);
  moved = {};
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
  EXPECT_EQ(rig.put(std::span(keys).subspan(2))->stored, 2u);
  EXPECT_EQ(rig.store->match(keys).size(), 0u);
}

}  // namespace
}  // namespace headrace
