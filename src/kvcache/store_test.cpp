// SPDX-License-Identifier: Apache-2.0
// End to end: blocks in, from memory to the folder, and back with their checksums compared.
#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

TEST(KvStore, BlocksThatLeaveMemoryComeBackFromTheFolder) {
  KvRig rig;
  rig.open({4}, 64);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 20));
  ASSERT_EQ(keys.size(), 20u);
  const auto counts = rig.put(keys);
  ASSERT_TRUE(counts.has_value()) << counts.error().message;
  EXPECT_EQ(counts->stored, 20u);
  rig.settle();
  const kvcache::StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.tiers[1].arrived, 16u);
  EXPECT_EQ(stats.tiers[0].dropped, 0u);
  EXPECT_EQ(stats.in_flight, 0_B);
  for (const bool layer_order : {true, false}) {
    for (const bool promote : {false, true}) {
      const Status got = rig.get(keys, {.layer_order = layer_order, .promote = promote});
      EXPECT_TRUE(got.has_value()) << got.error().message;
    }
  }
  EXPECT_EQ(rig.store->match(keys).size(), 20u);
}

}  // namespace
}  // namespace headrace
