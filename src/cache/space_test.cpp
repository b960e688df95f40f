// SPDX-License-Identifier: Apache-2.0
// Who gets space, at whose cost, and what a block without space gives.
#include "headrace/cache.h"

#include <gtest/gtest.h>
#include <vector>

#include "cache/entry.h"
#include "cache/structures/index.h"
#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

TEST(CacheRoomTest, WithoutRoomTheBlockStandsForTheSourceOrSaysWhy) {
  Source source(100000);
  CacheRig rig({.budget = 8192_B});
  const Block large = rig.cache->access(source.at(0, 8193));
  EXPECT_EQ(large.state(), BlockState::absent);
  EXPECT_EQ(large.node(), kHbm);
  EXPECT_EQ((*large.wait()).data(), source.bytes().data());
  Opaque opaque(1_MiB);
  const Block none = rig.cache->access(whole(opaque));
  EXPECT_FALSE(none.now());
  EXPECT_FALSE(none.node());
  EXPECT_EQ(none.wait().error().code, ErrorCode::exhausted);
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.refusals, 2u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.bytes_used, 0_B);
}

TEST(CacheRoomTest, APolicyWithoutAnAnswerOrABudgetIsARefusal) {
  Source fastest(4096, kHbm);
  CacheRig rig;
  for (const PlacementPolicy& policy :
       {PlacementPolicy(place::nearest_fast), place::always(kHbm)}) {
    auto cache = Cache::create(*rig.mover, {.budgets = {{kDram, 1_MiB}}, .placement = policy});
    ASSERT_TRUE(cache.has_value());
    const Block block = (*cache)->access(whole(fastest.object()));
    EXPECT_EQ(block.state(), BlockState::absent);
    EXPECT_TRUE(block.wait().has_value());
    EXPECT_EQ((*cache)->stats().refusals, 1u);
  }
}

TEST(CacheRoomTest, ABlockThatFitsIntoNoSlabWithItsAlignment_IsNotRefused) {
  Source source(1 << 20);
  CacheRig rig({.cache = {.slab = 8192_B}, .budget = 32768_B});
  for (std::uint64_t i = 0; i < 4; ++i) rig.load(source.at(i * 8192, 8192));
  for (const std::uint64_t offset : {65536 + 512, 131072 + 64}) {
    const Block block = rig.cache->access(source.at(offset, 8192));
    rig.settle();
    EXPECT_EQ(block.state(), BlockState::ready) << offset;
  }
  EXPECT_EQ(rig.cache->access(source.at(200000 + 512, 12288)).state(), BlockState::filling)
      << "a longer one after it";
  rig.settle();
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

TEST(CacheRoomTest, ABlockLargerThanASlabTakesThePlaceOfSmallOnes) {
  Source source(200000);
  CacheRig rig({.cache = {.slab = 4096_B}, .budget = 32768_B});
  for (std::uint64_t i = 0; i < 8; ++i) rig.load(source.at(i * 4096, 4096));
  rig.load(source.at(100000, 20000));
  EXPECT_EQ(rig.cache->access(source.at(100000, 20000)).state(), BlockState::ready);
  EXPECT_LE(rig.cache->stats().bytes_used, 32768_B);
  // And small ones take the place of the large one again.
  for (std::uint64_t i = 0; i < 8; ++i) rig.load(source.at(i * 4096, 4096));
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

TEST(CacheRoomTest, ALargeBlockTakesARowOfSmallOnesAndNotMore) {
  Source source(400000);
  CacheRig rig({.cache = {.slab = 65536_B}, .budget = 65536_B});
  for (std::uint64_t i = 0; i < 16; ++i) rig.load(source.at(i * 4096, 4096));
  EXPECT_EQ(rig.cache->stats().evictions, 0u);
  rig.load(source.at(16 * 4096, 16384));
  EXPECT_EQ(rig.cache->stats().evictions, 4u);
  EXPECT_EQ(rig.cache->stats().bytes_used, 65536_B);
}

// The large slab is full of pins, so the small ones have to make the space.
TEST(CacheRoomTest, ALargeBlockFindsRoomBesideASlabOfPins) {
  Source source(200000);
  CacheRig rig({.cache = {.slab = 4096_B}, .budget = 65536_B});
  const Block held = rig.cache->access(source.at(0, 32768));
  for (std::uint64_t i = 0; i < 8; ++i) rig.load(source.at(32768 + i * 4096, 4096));
  const Block large = rig.cache->access(source.at(100 * 1024, 28672));
  rig.settle();
  EXPECT_EQ(large.state(), BlockState::ready);
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

// A run of four ends before the third block, which is there. The cell of the index for the two that
// are left is full of blocks that are in use.
TEST(CacheRoomTest, ARunWithoutSpaceInTheIndex_IsFetchedBlockByBlock) {
  constexpr std::uint64_t kEach = 4096;
  Source source(8 * kEach);
  CacheRig rig({.budget = 16_MiB});
  std::vector<Block> held;
  for (std::uint64_t i = 1; i <= RangeIndex<CacheEntry>::kMostInCell; ++i) {
    held.push_back(rig.cache->access(source.at(kEach + i, 2 * kEach)));
  }
  rig.settle();
  std::vector<Extent> plan;
  for (std::uint64_t i = 0; i < 4; ++i) plan.push_back(source.at(i * kEach, kEach));
  const Prefetch prefetch = rig.cache->prefetch(plan);
  rig.settle();
  EXPECT_EQ(prefetch.progress().started, 4u);
  EXPECT_EQ(rig.cache->stats().prefetched, 3u);
  for (const Extent& extent : plan) {
    const Block block = rig.cache->access(extent);
    EXPECT_EQ(block.state(), BlockState::ready) << extent.offset;
    EXPECT_TRUE(source.equals(extent, *block.wait()));
  }
  EXPECT_EQ(prefetch.progress().used, 4u);
}

// More pins than one search looks at, all older than what can go.
TEST(CacheRoomTest, ManyPinsDoNotHideWhatCanGo) {
  Source source(256 * 1024);
  CacheRig rig({.cache = {.slab = 65536_B}, .budget = 131072_B});
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 256; ++i) {
    Block block = rig.cache->access(source.at(i * 512, 512));
    rig.settle();
    if (i < 128) held.push_back(std::move(block));
  }
  const Block block = rig.cache->access(source.at(200 * 1024, 512));
  rig.settle();
  EXPECT_EQ(block.state(), BlockState::ready);
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
  EXPECT_EQ(rig.cache->stats().evictions, 1u);
}

}  // namespace
}  // namespace headrace
