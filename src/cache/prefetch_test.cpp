// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/cache_rig.h"
#include "tests/support/manual_waiting.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kBlock = 4096;
// Too small for neighbours to be fetched as one block.
constexpr Bytes kNoRuns{64 * kBlock};

std::vector<Extent> blocks_of(const Source& source, std::uint64_t count) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < count; ++i) extents.push_back(source.at(i * kBlock, kBlock));
  return extents;
}

TEST(PrefetchTest, FetchesInOrderUpToTheWindowAndSlidesWithUse) {
  Source source(32 * kBlock);
  CacheRig rig({.budget = Bytes{64 * kBlock}});
  const auto plan = blocks_of(source, 32);
  const Prefetch prefetch = rig.cache->prefetch(plan, {.window = Bytes{4 * kBlock}});
  EXPECT_EQ(prefetch.progress().started, 4u);
  rig.settle();
  EXPECT_EQ(prefetch.progress().started, 4u);  // the window counts unused items
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Block block = rig.cache->access(plan[i]);
    EXPECT_EQ(block.state(), BlockState::ready) << i;
    EXPECT_LE(prefetch.progress().started, i + 1 + 4);
    rig.settle();
  }
  EXPECT_EQ(prefetch.progress().used, 32u);
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.misses, 0u);
  EXPECT_EQ(stats.hits, 32u);
  EXPECT_EQ(stats.prefetched, 32u);
  EXPECT_EQ(stats.first_uses, 32u);
  EXPECT_EQ(stats.late, 0u);
  EXPECT_EQ(stats.wasted_bytes, 0_B);
  std::vector<std::uint64_t> order;
  for (const Piece& piece : rig.fake->accepted()) order.push_back(piece.from.offset);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(PrefetchTest, CachedExtent_CountsAsStartedAndIsProtected) {
  Source source(100 * kBlock);
  CacheRig rig({.budget = Bytes{4 * kBlock}});
  rig.load(source.at(0, kBlock));
  const Prefetch prefetch = rig.cache->prefetch(std::vector{source.at(0, kBlock)});
  EXPECT_EQ(prefetch.progress().started, 1u);
  EXPECT_EQ(rig.cache->stats().prefetched, 0u);
  for (std::uint64_t i = 10; i < 30; ++i) rig.load(source.at(i * kBlock, kBlock));
  EXPECT_EQ(rig.cache->access(source.at(0, kBlock)).state(), BlockState::ready);
  EXPECT_EQ(prefetch.progress().used, 1u);
  rig.cache->flush();  // used once, so no longer protected
  EXPECT_EQ(rig.cache->access(source.at(0, kBlock)).state(), BlockState::filling);
  rig.settle();
}

TEST(PrefetchTest, UseBeforeTheCopyIsReady_IsLate) {
  Source source(2 * kBlock);
  CacheRig rig({.budget = kNoRuns});
  rig.fake->hold(true);
  const Prefetch prefetch = rig.cache->prefetch(blocks_of(source, 2));
  (void)rig.cache->access(source.at(0, kBlock));
  rig.fake->hold(false);
  rig.settle();
  (void)rig.cache->access(source.at(kBlock, kBlock));
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.inflight_hits, 1u);
  EXPECT_EQ(stats.first_uses, 2u);
  EXPECT_EQ(stats.late, 1u);
}

// A copy that a thread waits for is read before one that none waits for.
TEST(PrefetchTest, AccessToAPrefetchInFlight_MakesItUrgent) {
  Source source(4 * kBlock);
  CacheRig rig({.fake = {.max_in_flight = 1}, .budget = kNoRuns});
  const auto plan = blocks_of(source, 4);
  const Prefetch prefetch = rig.cache->prefetch(plan);
  {
    const Block ahead = rig.cache->access(plan[2], {.priority = Priority::prefetch});
    const Block wanted = rig.cache->access(plan[3]);
    EXPECT_TRUE(source.equals(plan[3], *wanted.wait()));
  }
  rig.settle();
  std::vector<std::uint64_t> order;
  for (const Piece& piece : rig.fake->accepted()) order.push_back(piece.from.offset / kBlock);
  // Both engines of the rig have taken one copy before the access.
  EXPECT_LT(std::ranges::find(order, 3), std::ranges::find(order, 2));
}

TEST(PrefetchTest, AccessToAPart_UsesThePlannedExtent) {
  Source source(4 * kBlock);
  CacheRig rig;
  const Prefetch prefetch = rig.cache->prefetch(std::vector{source.at(0, 4 * kBlock)});
  rig.settle();
  (void)rig.cache->access(source.at(100, 5));
  EXPECT_EQ(prefetch.progress().used, 1u);
  EXPECT_EQ(rig.cache->stats().hits, 1u);
}

TEST(PrefetchTest, Cancel_StartsNoMoreAndEndsTheProtection) {
  Source source(100 * kBlock);
  CacheRig rig({.budget = Bytes{8 * kBlock}});
  std::vector<Extent> plan = blocks_of(source, 20);
  plan.push_back(plan.back());
  Prefetch prefetch = rig.cache->prefetch(plan);
  rig.settle();
  rig.cache->flush();
  EXPECT_EQ(rig.cache->stats().blocks, 4u);  // protected
  prefetch.cancel();
  EXPECT_TRUE(prefetch.progress().cancelled);
  EXPECT_EQ(prefetch.progress().started, 4u);
  rig.cache->flush();
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
  EXPECT_EQ(rig.cache->stats().wasted_bytes, Bytes{4 * kBlock});
  rig.settle();
  EXPECT_EQ(rig.cache->stats().prefetched, 4u);
  prefetch.cancel();  // a second call is harmless
}

TEST(PrefetchTest, DroppingTheHandle_CancelsAndKeepsCopiesThatHaveBegun) {
  Source source(20 * kBlock);
  CacheRig rig({.fake = {.max_in_flight = 1}, .budget = kNoRuns});
  rig.fake->hold(true);
  std::vector<Extent> plan = blocks_of(source, 20);
  plan.push_back(plan.back());
  Prefetch prefetch = rig.cache->prefetch(plan);
  const Block waits = rig.cache->access(source.at(19 * kBlock, kBlock));
  const std::size_t begun = rig.fake->accepted().size();
  prefetch = {};
  EXPECT_EQ(rig.cache->access(source.at(0, kBlock)).state(), BlockState::filling);
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(rig.fake->accepted().size(), begun + 1) << "and the copy that an access waits for";
  EXPECT_EQ(rig.cache->access(source.at(19 * kBlock, kBlock)).state(), BlockState::ready);
  EXPECT_EQ(rig.cache->access(source.at(0, kBlock)).state(), BlockState::ready);
}

TEST(PrefetchTest, ItemInvalidatedBeforeItsUse_IsFetchedAgain) {
  Source source(4 * kBlock);
  CacheRig rig({.budget = kNoRuns});
  const Prefetch prefetch = rig.cache->prefetch(blocks_of(source, 4));
  rig.settle();
  source.bytes()[kBlock] = std::byte{0x55};
  rig.cache->invalidate(source.at(kBlock, 1));
  rig.settle();
  EXPECT_EQ(prefetch.progress().started, 4u);
  EXPECT_EQ(rig.cache->stats().prefetched, 5u);
  const Block block = rig.cache->access(source.at(kBlock, kBlock));
  EXPECT_EQ(block.state(), BlockState::ready);
  EXPECT_EQ((*block.now())[0], std::byte{0x55});
}

TEST(PrefetchTest, FailedItem_IsLeftToTheAccess) {
  Source source(4 * kBlock);
  CacheRig rig({.budget = kNoRuns});
  for (const EngineId engine : {kCpuA, kCpuB}) {
    rig.fake->break_engine(engine, Error{ErrorCode::io, "broken"});
  }
  const Prefetch prefetch = rig.cache->prefetch(blocks_of(source, 4));
  rig.settle();
  EXPECT_EQ(rig.cache->stats().failures, 4u);
  EXPECT_EQ(rig.cache->stats().prefetched, 4u);  // each once
  for (const EngineId engine : {kCpuA, kCpuB}) rig.fake->break_engine(engine, std::nullopt);
  rig.load(source.at(0, kBlock));
  EXPECT_EQ(rig.cache->stats().misses, 1u);
}

TEST(PrefetchTest, TwoPlansWithTheSameExtentFetchItOnceAndBothProtectIt) {
  Source source(8 * kBlock);
  CacheRig rig({.budget = Bytes{8 * kBlock}});
  Prefetch one = rig.cache->prefetch(blocks_of(source, 2));
  const Prefetch two = rig.cache->prefetch(blocks_of(source, 2));
  rig.settle();
  EXPECT_EQ(rig.cache->stats().prefetched, 2u);
  one.cancel();
  rig.cache->flush();
  EXPECT_EQ(rig.cache->stats().blocks, 2u);
  (void)rig.cache->access(source.at(0, kBlock));
  EXPECT_EQ(two.progress().used, 1u);
  EXPECT_EQ(one.progress().used, 0u);
}

TEST(PrefetchTest, ItemAWindowBehindTheFurthestUse_IsPassedOver) {
  Source source(64 * kBlock);
  CacheRig rig({.budget = Bytes{64 * kBlock}});
  const auto plan = blocks_of(source, 64);
  const Prefetch prefetch = rig.cache->prefetch(plan, {.window = Bytes{4 * kBlock}});
  rig.settle();
  {
    const Block jump = rig.cache->access(plan[20], {.plan = &prefetch});
  }
  rig.settle();  // 0..15 are more than the window behind
  EXPECT_EQ(prefetch.progress().used, 1u);
  for (const std::uint64_t i : {16U, 17U, 18U, 19U}) {
    EXPECT_EQ(rig.cache->access(plan[i], {.plan = &prefetch}).state(), BlockState::ready) << i;
  }
  rig.settle();
  EXPECT_EQ(rig.cache->access(plan[21]).state(), BlockState::ready);
  rig.cache->flush();
  EXPECT_EQ(rig.cache->access(plan[2]).state(), BlockState::filling);  // no longer protected
  rig.settle();
}

// One item repeatedly, and one access over many items, while the consumer pauses. Later a point
// lookup of another query for each item.
TEST(PrefetchTest, AccessesOfOthers_DoNotEndAPlan) {
  Source source(64 * kBlock);
  CacheRig rig({.budget = Bytes{64 * kBlock}});
  const auto plan = blocks_of(source, 64);
  const Prefetch prefetch = rig.cache->prefetch(plan, {.window = Bytes{4 * kBlock}});
  rig.settle();
  for (int i = 0; i < 100; ++i) rig.load(plan[50 + i % 2]);
  for (int i = 0; i < 8; ++i) rig.load(source.at(30 * kBlock, 30 * kBlock));
  EXPECT_EQ(prefetch.progress().used, 0u);
  for (std::size_t i = 0; i < 24; ++i) {
    rig.load(plan[63 - i % 20]);
    EXPECT_EQ(rig.cache->access(plan[i]).state(), BlockState::ready) << i;
    rig.settle();
  }
  EXPECT_EQ(prefetch.progress().used, 24u);
}

TEST(PrefetchTest, PlanThatWasNamed_IgnoresOtherAccesses) {
  Source source(16 * kBlock);
  CacheRig rig({.budget = Bytes{32 * kBlock}});
  const auto plan = blocks_of(source, 16);
  const Prefetch prefetch = rig.cache->prefetch(plan, {.window = Bytes{4 * kBlock}});
  const Prefetch other = rig.cache->prefetch(plan, {.window = Bytes{4 * kBlock}});
  rig.settle();
  const auto use = [&](std::size_t i, const Prefetch* named) {
    EXPECT_EQ(rig.cache->access(plan[i], {.plan = named}).state(), BlockState::ready) << i;
    rig.settle();
  };
  use(0, &prefetch);
  EXPECT_EQ(other.progress().used, 0u) << "the access named another plan";
  for (const std::size_t i : {1U, 2U, 3U}) use(i, nullptr);
  EXPECT_EQ(prefetch.progress().used, 1u);
  EXPECT_EQ(other.progress().used, 3u) << "no access named it";
  for (std::size_t i = 1; i < plan.size(); ++i) use(i, &prefetch);
  EXPECT_EQ(prefetch.progress().used, 16u);
}

TEST(PrefetchTest, ManyAccessesFarAhead_AreAJumpOfTheConsumer) {
  Source source(128 * kBlock);
  CacheRig rig({.budget = Bytes{64 * kBlock}});
  const auto plan = blocks_of(source, 128);
  const Prefetch prefetch = rig.cache->prefetch(plan, {.window = Bytes{4 * kBlock}});
  rig.settle();
  for (std::size_t i = 64; i < 80; ++i) rig.load(plan[i]);
  EXPECT_EQ(prefetch.progress().used, 1u) << "the last of them";
  for (std::size_t i = 80; i < 128; ++i) {
    EXPECT_EQ(rig.cache->access(plan[i]).state(), BlockState::ready) << i;
    rig.settle();
  }
}

TEST(PrefetchTest, AccessWithoutSpace_EvictsTheFurthestPlannedBlock) {
  Source source(20 * kBlock);
  CacheRig rig({.budget = Bytes{4 * kBlock}});
  const Block a = rig.cache->access(source.at(10 * kBlock, kBlock));
  const Block b = rig.cache->access(source.at(11 * kBlock, kBlock));
  const Prefetch prefetch = rig.cache->prefetch(blocks_of(source, 4));
  rig.settle();
  EXPECT_EQ(prefetch.progress().started, 2u);
  EXPECT_EQ(rig.cache->stats().bytes_used, Bytes{4 * kBlock});
  {
    const Block c = rig.cache->access(source.at(12 * kBlock, kBlock));
    EXPECT_EQ(c.state(), BlockState::filling);
    rig.settle();
    EXPECT_EQ(rig.cache->access(source.at(0, kBlock)).state(), BlockState::ready);
  }
  rig.settle();
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
  EXPECT_EQ(rig.cache->access(source.at(kBlock, kBlock)).state(), BlockState::ready);  // again
}

TEST(PrefetchTest, AccessWithoutSpace_EvictsAPlannedBlockBehindAPendingItem) {
  Source source(20 * kBlock);
  CacheRig rig({.budget = Bytes{4 * kBlock}});
  const Block a = rig.cache->access(source.at(10 * kBlock, kBlock));
  const Block b = rig.cache->access(source.at(11 * kBlock, kBlock));
  rig.load(source.at(kBlock, kBlock));
  rig.fake->hold(true);
  const Prefetch prefetch = rig.cache->prefetch(blocks_of(source, 2));
  EXPECT_EQ(prefetch.progress().started, 2u);
  rig.cache->invalidate(source.at(0, kBlock));  // pending again; an engine still writes its frame
  EXPECT_EQ(prefetch.progress().started, 1u);
  const Block c = rig.cache->access(source.at(12 * kBlock, kBlock));
  EXPECT_EQ(c.state(), BlockState::filling);
  rig.fake->hold(false);
  rig.settle();
}

TEST(PrefetchTest, PlanOfLargeBlocks_IsNotStarvedBySmallOnes) {
  Source source(64 * kBlock);
  CacheRig rig({.cache = {.slab = Bytes{kBlock}}, .budget = Bytes{16 * kBlock}});
  const auto small = blocks_of(source, 24);
  const Prefetch one = rig.cache->prefetch(small);
  rig.settle();
  EXPECT_EQ(one.progress().started, 8u) << "half of the budget";
  const Prefetch other = rig.cache->prefetch(
      std::vector{source.at(32 * kBlock, 6 * kBlock), source.at(48 * kBlock, 12 * kBlock)});
  EXPECT_EQ(other.progress().started, 1u) << "one item beside all others";
  for (std::size_t i = 0; i < 8; ++i) rig.load(small[i]);
  rig.load(source.at(32 * kBlock, 6 * kBlock));
  rig.settle();
  // From now on the plan of small blocks has the space that the other leaves.
  for (std::size_t i = 8; i < 14; ++i) rig.load(small[i]);
  rig.settle();
  EXPECT_EQ(other.progress().started, 2u);
  EXPECT_LE(one.progress().started, 18u) << "four ahead";
  rig.load(source.at(48 * kBlock, 12 * kBlock));
  for (std::size_t i = 14; i < 24; ++i) rig.load(small[i]);
  EXPECT_EQ(one.progress().used, 24u);
}

TEST(PrefetchTest, PausedPlan_LeavesOthersTheirShare) {
  Source source(256 * kBlock);
  ManualClock clock;
  ManualWaiting waiting(clock);
  CacheRig rig({.budget = Bytes{64 * kBlock}, .clock = &clock, .waiting = &waiting});
  const auto all = blocks_of(source, 256);
  const Prefetch paused = rig.cache->prefetch(std::span(all).first(128));
  rig.settle();
  EXPECT_EQ(paused.progress().started, 32u);
  const auto scan = std::span(all).last(128);
  const Prefetch other = rig.cache->prefetch(scan);
  rig.settle();
  EXPECT_EQ(other.progress().started, 16u) << "half of the half";
  for (const Extent& extent : scan) {
    EXPECT_EQ(rig.cache->access(extent).state(), BlockState::ready);
    rig.settle();
    clock.advance(std::chrono::milliseconds{1});
  }
  EXPECT_EQ(rig.cache->stats().misses, 0u);
  EXPECT_EQ(paused.progress().started, 32u) << "no plan needed its blocks";
}

// However many plans pause, the next one has half of the budget.
TEST(PrefetchTest, BlocksOfPausedPlans_AreTakenBackAndFetchedAgain) {
  Source source(1024 * kBlock);
  ManualClock clock;
  ManualWaiting waiting(clock);
  CacheRig rig({.budget = Bytes{64 * kBlock}, .clock = &clock, .waiting = &waiting});
  const auto all = blocks_of(source, 1024);
  std::vector<Prefetch> plans;
  for (std::size_t i = 0; i < 8; ++i) {
    plans.push_back(rig.cache->prefetch(std::span(all).subspan(i * 128, 128)));
    rig.settle();
    clock.advance(std::chrono::seconds{2});
  }
  const auto scan = [&](std::size_t plan) {
    for (std::size_t i = 0; i < 128; ++i) {
      const Block block = rig.cache->access(all[plan * 128 + i], {.plan = &plans[plan]});
      // The first item was taken back, so the first access of a returning consumer misses.
      EXPECT_TRUE(i == 0 || block.state() == BlockState::ready) << plan << ' ' << i;
      rig.settle();
      clock.advance(std::chrono::milliseconds{1});
    }
    EXPECT_EQ(plans[plan].progress().used, 128u);
  };
  EXPECT_EQ(plans[7].progress().started, 32u);
  scan(7);
  for (const std::size_t plan : {0U, 3U}) {
    scan(plan);
    clock.advance(std::chrono::seconds{2});
  }
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

TEST(PrefetchTest, NeighboursAreFetchedAsOneBlock) {
  Source source(1024 * kBlock);
  CacheRig rig({.budget = Bytes{512 * kBlock}});
  const auto plan = blocks_of(source, 1024);
  const Prefetch prefetch = rig.cache->prefetch(plan);
  rig.settle();
  EXPECT_EQ(prefetch.progress().started, 256u);
  EXPECT_EQ(rig.cache->stats().prefetched, 32u) << "eight each: a 64th of the budget";
  for (const Extent& extent : plan) {
    const Block block = rig.cache->access(extent);
    EXPECT_EQ(block.state(), BlockState::ready);
    EXPECT_TRUE(source.equals(extent, *block.now()));
    rig.settle();
  }
  EXPECT_EQ(prefetch.progress().used, 1024u);
  EXPECT_EQ(rig.cache->stats().misses, 0u);
  EXPECT_EQ(rig.cache->stats().prefetched, 128u);
}

// Not over a gap, another object, or a cached block, nor backwards.
TEST(PrefetchTest, OnlyMissingNeighbours_AreFetchedAsOneBlock) {
  Source one(64 * kBlock);
  Source other(64 * kBlock);
  CacheRig rig;  // four blocks of 4 KiB
  rig.load(one.at(2 * kBlock, kBlock));
  const std::uint64_t before = rig.cache->stats().prefetched;
  std::vector<Extent> plan;
  for (const std::uint64_t i : {0U, 1U, 2U, 3U, 5U, 6U, 9U, 8U}) {
    plan.push_back(one.at(i * kBlock, kBlock));
  }
  plan.push_back(other.at(9 * kBlock, kBlock));
  const Prefetch prefetch = rig.cache->prefetch(plan);
  rig.settle();
  EXPECT_EQ(prefetch.progress().started, plan.size());
  EXPECT_EQ(rig.cache->stats().prefetched - before, 6u) << "01 3 56 9 8 9";
  rig.cache->invalidate(one.at(5 * kBlock, 1));
  rig.settle();
  EXPECT_EQ(rig.cache->stats().prefetched - before, 7u) << "both again";
  for (const Extent& extent : plan) {
    const Block block = rig.cache->access(extent);
    EXPECT_EQ(block.state(), BlockState::ready);
    const Source& source = extent.object == &one.object() ? one : other;
    EXPECT_TRUE(source.equals(extent, *block.now()));
  }
  EXPECT_EQ(prefetch.progress().used, plan.size());
}

// One of the neighbours cannot be read: the others are read without it.
TEST(PrefetchTest, FailedRun_IsTriedItemByItem) {
  Source source(64 * kBlock);
  CacheRig rig;
  for (const EngineId engine : {kCpuA, kCpuB}) {
    rig.fake->break_engine(engine, Error{ErrorCode::io, "broken"});
  }
  const Prefetch prefetch = rig.cache->prefetch(blocks_of(source, 4));
  for (int i = 0; i < 1000 && rig.cache->stats().failures == 0; ++i) rig.mover->poll();
  for (const EngineId engine : {kCpuA, kCpuB}) rig.fake->break_engine(engine, std::nullopt);
  rig.settle();
  EXPECT_EQ(rig.cache->stats().failures, 1u);
  EXPECT_EQ(rig.cache->stats().prefetched, 5u);
  EXPECT_EQ(prefetch.progress().started, 4u);
  for (const Extent& extent : blocks_of(source, 4)) {
    EXPECT_EQ(rig.cache->access(extent).state(), BlockState::ready);
  }
}

TEST(PrefetchTest, AWideAccessUsesAllItemsInsideIt) {
  Source source(8 * kBlock);
  CacheRig rig({.budget = Bytes{32 * kBlock}});
  const Prefetch prefetch = rig.cache->prefetch(blocks_of(source, 4));
  rig.settle();
  rig.load(source.at(0, 2 * kBlock + 100));
  EXPECT_EQ(prefetch.progress().used, 2u);
  rig.cache->flush();
  EXPECT_EQ(rig.cache->access(source.at(kBlock, kBlock)).state(), BlockState::filling);
  EXPECT_EQ(rig.cache->access(source.at(2 * kBlock, kBlock)).state(), BlockState::ready);
  rig.settle();
}

// Also if hits took no lock before the plan, and the cache is flushed between the uses.
TEST(PrefetchTest, RepeatedExtents_AreUsedOneByOneAndProtectedUntilTheLastUse) {
  Source source(8 * kBlock);
  CacheRig rig({.budget = Bytes{8 * kBlock}, .observe = false});
  const Extent a = source.at(0, kBlock);
  const Extent b = source.at(kBlock, kBlock);
  for (int i = 0; i < 2; ++i) rig.load(a);
  Prefetch prefetch = rig.cache->prefetch(std::vector{a, b, a, b, b, a});
  const Prefetch other = rig.cache->prefetch(std::vector{b, b});
  rig.settle();
  std::size_t used = 0;
  for (const Extent& extent : {a, a, b, a, b}) {
    EXPECT_EQ(rig.cache->access(extent).state(), BlockState::ready);
    EXPECT_EQ(prefetch.progress().used, ++used);
    rig.cache->flush();
  }
  EXPECT_EQ(other.progress().used, 2u);
  rig.load(source.at(0, 2 * kBlock));
  EXPECT_EQ(prefetch.progress().used, 6u) << "one of the repeats per access";
  rig.load(a);
  EXPECT_EQ(prefetch.progress().used, 6u);
  rig.cache->invalidate(source.at(0, 8 * kBlock));
  rig.settle();
  EXPECT_EQ(rig.cache->stats().blocks, 0u) << "nothing is planned any more";
}

TEST(PrefetchTest, EmptyInvalidAndTooLargeExtentsDoNotHoldAPlanUp) {
  Source source(20 * kBlock);
  CacheRig rig({.budget = Bytes{4 * kBlock}});
  const Prefetch prefetch =
      rig.cache->prefetch(std::vector{source.at(0, 0), source.at(20 * kBlock, 1),
                                      source.at(0, 20 * kBlock), Extent{}, source.at(0, kBlock)});
  rig.settle();
  EXPECT_EQ(prefetch.progress().planned, 5u);
  EXPECT_EQ(prefetch.progress().invalid, 2u);
  EXPECT_EQ(prefetch.progress().started, 2u);
  EXPECT_EQ(rig.cache->access(source.at(0, kBlock)).state(), BlockState::ready);
}

}  // namespace
}  // namespace headrace
