// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kPiece = 4096;

// Each shard makes the extents of its own stretches.
TEST(ShardedStridedPlanTest, EachExtent_IsFetchedByOneShard) {
  const Source source(2048 * kPiece);
  for (const std::uint64_t stride : {1U, 3U, 16U, 37U}) {
    CacheRig rig({.cache = {.shards = 8}, .budget = 64_MiB, .observe = false});
    const std::uint64_t count = 2048 / stride;
    const Strided all{.object = &source.object(),
                      .length = Bytes{kPiece},
                      .stride = stride * kPiece,
                      .count = count};
    const Prefetch plan = rig.cache->prefetch(all);
    rig.settle();
    for (std::uint64_t i = 0; i < count; ++i) {
      const Extent extent = source.at(i * stride * kPiece, kPiece);
      const Block block = rig.cache->access(extent, {.plan = &plan});
      ASSERT_EQ(block.state(), BlockState::ready) << stride << ' ' << i;
      ASSERT_TRUE(source.equals(extent, *block.now()));
      rig.settle();
    }
    EXPECT_EQ(plan.progress().used, count);
    EXPECT_EQ(plan.progress().planned, count);
    EXPECT_EQ(rig.cache->stats().misses, 0u);
  }
}

TEST(ShardedStridedPlanTest, ExtentsThatShardsOfAWritableCacheCannotHold_AreInvalid) {
  const Source source(2048 * kPiece);
  CacheRig rig({.cache = {.shards = 8, .writable = true}, .budget = 64_MiB});
  const auto invalid = [&](std::uint64_t offset, std::uint64_t stride) {
    const Strided all{.object = &source.object(),
                      .offset = offset,
                      .length = Bytes{kPiece},
                      .stride = stride,
                      .count = 4};
    return rig.cache->prefetch(all).progress().invalid;
  };
  EXPECT_EQ(invalid(0, kPiece), 0u);
  EXPECT_EQ(invalid(8 * kPiece, 5 * kPiece), 0u);
  EXPECT_EQ(invalid(1, kPiece), 4u);
  EXPECT_EQ(invalid(0, kPiece + 1), 4u);
  rig.settle();
}

}  // namespace
}  // namespace headrace
