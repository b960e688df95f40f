// SPDX-License-Identifier: Apache-2.0
// What is counted and told.
#include "headrace/cache.h"

#include <gtest/gtest.h>

#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

TEST(CacheStatsTest, TheObserverSeesTheExactSequence) {
  Source source(8192);
  CacheRig rig({.budget = 4096_B});
  const Extent a = source.at(0, 4096);
  const Extent b = source.at(4096, 4096);
  {
    const Block first = rig.cache->access(a);
    const Block second = rig.cache->access(a);
    rig.settle();
  }
  (void)rig.cache->access(a);
  rig.load(b);
  rig.cache->invalidate(b);
  rig.fake->break_engine(kCpuA, Error{ErrorCode::io, "broken"});
  rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken"});
  rig.load(a);
  EXPECT_EQ(rig.event_names(),
            "miss fill_started inflight_hit ready hit evicted miss fill_started ready invalidated "
            "miss fill_started failed");
  EXPECT_EQ(rig.events[5].extent, a);
  EXPECT_EQ(rig.events[9].extent, b);
  EXPECT_FALSE(rig.events[1].by_prefetch);
  for (std::size_t i = 1; i < rig.events.size(); ++i) {
    EXPECT_LE(rig.events[i - 1].time, rig.events[i].time);
  }
}

TEST(CacheStatsTest, PercentilesAreUnknownUntilSomethingWasCounted) {
  Source source(4096);
  ManualClock clock;
  CacheRig rig({.clock = &clock});
  EXPECT_FALSE(rig.cache->stats().wait_time.p50);
  EXPECT_FALSE(rig.cache->stats().copy_latency.p99);
  rig.fake->hold(true);
  const Block block = rig.cache->access(source.at(0, 4096));
  clock.advance(Nanoseconds{1000});
  rig.fake->hold(false);
  rig.settle();
  const CacheStats stats = rig.cache->stats();
  EXPECT_FALSE(stats.wait_time.p50);  // nobody had to wait
  EXPECT_EQ(stats.copy_latency.count, 1u);
  EXPECT_GE(*stats.copy_latency.p50, 1000u);
  EXPECT_LE(*stats.copy_latency.p50, 1063u);  // the histogram's buckets are 1/16 wide
}

TEST(CacheStatsTest, WordsOfStatesAndEvents) {
  EXPECT_EQ(to_string(BlockState::filling), "filling");
  EXPECT_EQ(to_string(BlockState::evicting), "evicting");
  EXPECT_EQ(to_string(CacheEvent::Kind::inflight_hit), "inflight_hit");
  EXPECT_EQ(to_string(CacheEvent::Kind::invalidated), "invalidated");
}

// However many wait() calls it takes: a wait in slices is one wait.
TEST(CacheStatsTest, AWaitCountsOncePerHandle) {
  Source source(4096);
  CacheRig rig;
  rig.fake->hold(true);
  const Block block = rig.cache->access(source.at(0, 4096));
  const auto slice = std::chrono::milliseconds{2};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(block.wait(slice).error().code, ErrorCode::timed_out);
  EXPECT_EQ(rig.cache->stats().wait_time.count, 0u);
  rig.fake->hold(false);
  EXPECT_TRUE(block.wait());
  EXPECT_TRUE(block.wait());
  const auto waits = rig.cache->stats().wait_time;
  EXPECT_EQ(waits.count, 1u);
  EXPECT_GE(waits.p50.value_or(0), 6'000'000u * 9 / 10);  // the buckets are rounded
}

}  // namespace
}  // namespace headrace
