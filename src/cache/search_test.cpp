// SPDX-License-Identifier: Apache-2.0
// Space: which block gets it, which is evicted for it, and what a block without space returns.
#include "headrace/cache.h"

#include <gtest/gtest.h>
#include <vector>

#include "cache/structures/entry.h"
#include "cache/structures/index.h"
#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

TEST(CacheSpaceTest, BlockWithoutSpace_GivesTheSourceOrTheReason) {
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

TEST(CacheSpaceTest, PolicyWithoutAnAnswerOrABudget_IsARefusal) {
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

TEST(CacheSpaceTest, BlockThatFitsIntoNoSlabWithItsAlignment_IsNotRefused) {
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

TEST(CacheSpaceTest, BlockLargerThanASlab_TakesThePlaceOfSmallOnes) {
  Source source(200000);
  CacheRig rig({.cache = {.slab = 4096_B}, .budget = 32768_B});
  for (std::uint64_t i = 0; i < 8; ++i) rig.load(source.at(i * 4096, 4096));
  rig.load(source.at(100000, 20000));
  EXPECT_EQ(rig.cache->access(source.at(100000, 20000)).state(), BlockState::ready);
  EXPECT_LE(rig.cache->stats().bytes_used, 32768_B);
  // And small ones take the place of the large one.
  for (std::uint64_t i = 0; i < 8; ++i) rig.load(source.at(i * 4096, 4096));
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

TEST(CacheSpaceTest, LargeBlock_EvictsOneRowOfSmallOnes) {
  Source source(400000);
  CacheRig rig({.cache = {.slab = 65536_B}, .budget = 65536_B});
  for (std::uint64_t i = 0; i < 16; ++i) rig.load(source.at(i * 4096, 4096));
  EXPECT_EQ(rig.cache->stats().evictions, 0u);
  rig.load(source.at(16 * 4096, 16384));
  EXPECT_EQ(rig.cache->stats().evictions, 4u);
  EXPECT_EQ(rig.cache->stats().bytes_used, 65536_B);
}

// The large slab is full of pins, so space must come from the small ones.
TEST(CacheSpaceTest, LargeBlock_FindsSpaceBesideASlabOfPins) {
  Source source(200000);
  CacheRig rig({.cache = {.slab = 4096_B}, .budget = 65536_B});
  const Block held = rig.cache->access(source.at(0, 32768));
  for (std::uint64_t i = 0; i < 8; ++i) rig.load(source.at(32768 + i * 4096, 4096));
  const Block large = rig.cache->access(source.at(100 * 1024, 28672));
  rig.settle();
  EXPECT_EQ(large.state(), BlockState::ready);
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

// A run of four blocks ends before the third, which is cached. The index cell for the remaining two
// is full of blocks in use.
TEST(CacheSpaceTest, RunWithoutSpaceInTheIndex_IsFetchedBlockByBlock) {
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

// More pins than one search examines, all older than the droppable blocks.
TEST(CacheSpaceTest, ManyPins_DoNotHideDroppableBlocks) {
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

// More pins than the longest search examines. Each refused access looks a little further.
TEST(CacheSpaceTest, VeryManyPins_HideDroppableBlocksOnlyForAWhile) {
  constexpr std::uint64_t kBlocks = 20032;  // whole pages, of 64 blocks each
  Source source((kBlocks + 1) * 64);
  CacheRig rig({.cache = {.slab = Bytes{kBlocks * 64}}, .budget = Bytes{kBlocks * 64}});
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    held.push_back(rig.cache->access(source.at(i * 64, 64)));
    if (i % 1000 == 999) rig.settle();
  }
  held[kBlocks - 1000] = {};
  const Extent another = source.at(kBlocks * 64, 64);
  std::uint64_t refused = 0;
  while (rig.cache->access(another).state() == BlockState::absent && refused < kBlocks) ++refused;
  EXPECT_LT(refused, 4 * kBlocks / 64);
}

// The large block is used up and would be evicted first. More victims are chosen for the small one.
TEST(CacheSpaceTest, SmallBlock_TakesThePlaceOfASmallOne) {
  constexpr std::uint64_t kLarge = 16 * 4096;
  Source source(1 << 20);
  CacheRig rig({.cache = {.slab = 256_KiB}, .budget = 256_KiB, .observe = false});
  for (std::uint64_t i = 0; i < 48; ++i) rig.load(source.at(kLarge + i * 4096, 4096));
  const std::vector<Extent> items{source.at(0, kLarge)};
  {
    const Prefetch plan = rig.cache->prefetch(items);
    rig.settle();
    EXPECT_TRUE(rig.cache->access(items[0], {.plan = &plan}).hit());
  }
  rig.load(source.at(512 * 1024, 4096));
  EXPECT_EQ(rig.cache->stats().evictions, 1u);
  EXPECT_TRUE(rig.cache->access(items[0]).hit());
}

// Victims are chosen many at a time: all from the queue whose turn it is.
TEST(CacheSpaceTest, NewBlocks_DoNotEvictBlocksInUse) {
  constexpr std::uint64_t kBlocks = 8192, kUsed = 4096, kNew = 3 * kBlocks;
  Source source((kBlocks + kNew) * 64);
  FakeOptions fake;
  fake.inside_chance = 1;
  CacheRig rig({.fake = fake,
                .cache = {.slab = Bytes{kBlocks * 64}},
                .budget = Bytes{kBlocks * 64},
                .observe = false});
  const auto use = [&](std::uint64_t block) { (void)rig.cache->access(source.at(block * 64, 64)); };
  for (std::uint64_t i = 0; i < kUsed; ++i) use(i);
  for (std::uint64_t i = 0; i < kUsed; ++i) use(i);
  for (std::uint64_t i = 0; i < kNew; ++i) use(kBlocks + i);
  const std::uint64_t hits = rig.cache->stats().hits;
  for (std::uint64_t i = 0; i < kUsed; ++i) use(i);
  EXPECT_GT(rig.cache->stats().hits - hits, kUsed * 99 / 100);
}

// No slab can be released: each has a held block.
TEST(CacheSpaceTest, SmallerBudget_EvictsPlannedBlocks) {
  constexpr std::uint64_t kEach = 4096;
  Source source(64 * kEach);
  CacheRig rig({.cache = {.slab = 65536_B}, .budget = 131072_B});
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 32; ++i) {
    Block block = rig.cache->access(source.at(i * kEach, kEach));
    rig.settle();
    if (i % 16 == 0) held.push_back(std::move(block));
  }
  std::vector<Extent> plan;
  for (std::uint64_t i = 1; i < 16; ++i) plan.push_back(source.at(i * kEach, kEach));
  const Prefetch prefetch = rig.cache->prefetch(plan);
  EXPECT_EQ(prefetch.progress().started, plan.size());
  ASSERT_TRUE(rig.cache->resize(kDram, Bytes{8 * kEach}));
  EXPECT_LE(rig.cache->stats().bytes_used, Bytes{8 * kEach});
  EXPECT_LE(prefetch.progress().started, 8u) << "the others are pending again";
}

// A quarter of the budget is in use, among blocks that were used once. Then come scans of many
// times the budget, beside lookups of used and unused blocks.
struct CacheScanTest : ::testing::Test {
  static constexpr std::uint64_t kEach = 4096;
  static constexpr std::uint64_t kBlocks = 256;
  static constexpr std::uint64_t kScan = 2048;

  void SetUp() override {
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      rig.load(source.at(i * kEach, kEach));
      if (i % 4 == 0) rig.load(source.at(i * kEach, kEach));
    }
  }
  std::vector<Extent> scan(std::uint64_t offset, std::uint64_t bytes, std::uint64_t each) const {
    std::vector<Extent> found;
    for (std::uint64_t at = 0; at < bytes; at += each) {
      found.push_back(scanned.at(offset + at, each));
    }
    return found;
  }
  void look_up() {
    rig.load(source.at((kBlocks + lookups) * kEach, kEach));
    const std::uint64_t before = rig.cache->stats().misses;
    rig.load(source.at(lookups++ * 4 % kBlocks * kEach, kEach));
    // The first blocks of another size take rows of these.
    if (lookups > kBlocks) misses_in_use += rig.cache->stats().misses - before;
  }

  Source source{(2 * kBlocks + kScan) * kEach};
  Source scanned{kScan * kEach};
  CacheRig rig{{.cache = {.slab = 256_KiB}, .budget = Bytes{kBlocks * kEach}, .observe = false}};
  std::uint64_t lookups = 0;
  std::uint64_t misses_in_use = 0;
};

TEST_F(CacheScanTest, WithoutAPlan_KeepsBlocksInUse) {
  for (const Extent& extent : scan(0, kScan * kEach, kEach)) {
    rig.load(extent);
    look_up();
  }
  EXPECT_EQ(misses_in_use, 0u);
}

// The runs of the plan are longer than the other blocks.
TEST_F(CacheScanTest, InRuns_KeepsBlocksInUse) {
  const auto all = scan(0, kScan * kEach, kEach);
  const Prefetch plan = rig.cache->prefetch(all, {.window = Bytes{16 * kEach}});
  for (const Extent& extent : all) {
    rig.settle();
    EXPECT_EQ(rig.cache->access(extent, {.plan = &plan}).state(), BlockState::ready);
    look_up();
  }
  EXPECT_LE(misses_in_use, lookups / 100);
}

TEST_F(CacheScanTest, ByAPlanForEachMatch_KeepsBlocksInUse) {
  const auto all = scan(0, kScan / 2 * kEach, kEach);
  const Prefetch filter = rig.cache->prefetch(all, {.window = Bytes{16 * kEach}});
  for (std::size_t i = 0; i < all.size(); ++i) {
    rig.settle();
    (void)rig.cache->access(all[i], {.plan = &filter});
    look_up();
    if (i % 8 != 0) continue;
    const auto match = scan((kScan / 2 + i) * kEach, 4 * kEach, kEach);
    const Prefetch plan = rig.cache->prefetch(match);
    for (const Extent& extent : match) {
      rig.settle();
      (void)rig.cache->access(extent, {.plan = &plan});
    }
  }
  EXPECT_LE(misses_in_use, lookups / 100);
}

// Each piece except the first finds a cached block.
TEST_F(CacheScanTest, InSmallPieces_KeepsBlocksInUse) {
  constexpr std::uint64_t kItem = 4 * kEach;
  const auto all = scan(0, kScan * kEach, kItem);
  const Prefetch plan = rig.cache->prefetch(all, {.window = Bytes{4 * kItem}});
  for (const Extent& extent : all) {
    for (std::uint64_t at = 0; at < kItem; at += kEach) {
      rig.settle();
      (void)rig.cache->access(extent.part(at, Bytes{kEach}), {.plan = &plan});
      look_up();
    }
  }
  EXPECT_LE(misses_in_use, lookups / 100);
}

TEST_F(CacheScanTest, AfterAPlanForBlocksInUse_KeepsThem) {
  std::vector<Extent> in_use;
  for (std::uint64_t i = 0; i < kBlocks; i += 4) in_use.push_back(source.at(i * kEach, kEach));
  const Prefetch plan = rig.cache->prefetch(in_use);
  for (const Extent& extent : in_use) (void)rig.cache->access(extent, {.plan = &plan});
  EXPECT_EQ(plan.progress().used, in_use.size());
  for (const Extent& extent : scan(0, kScan / 2 * kEach, kEach)) rig.load(extent);
  const std::uint64_t before = rig.cache->stats().misses;
  for (const Extent& extent : in_use) rig.load(extent);
  EXPECT_EQ(rig.cache->stats().misses, before);
}

// The other way round: blocks that are no longer used leave for blocks that are used now.
TEST_F(CacheScanTest, BesideANewWorkingSet_DoesNotKeepTheOldOne) {
  const auto now = scan(0, kBlocks / 2 * kEach, kEach);
  std::uint64_t others = kBlocks;
  for (int round = 0; round < 8; ++round) {
    for (const Extent& extent : now) rig.load(extent);
    for (int i = 0; i < 64; ++i) rig.load(source.at(others++ * kEach, kEach));
  }
  const std::uint64_t before = rig.cache->stats().misses;
  for (const Extent& extent : now) rig.load(extent);
  EXPECT_EQ(rig.cache->stats().misses, before);
}

}  // namespace
}  // namespace headrace
