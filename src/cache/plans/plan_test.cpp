// SPDX-License-Identifier: Apache-2.0
#include "cache/plans/plan.h"

#include <gtest/gtest.h>

#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

constexpr std::uint64_t kUnit = 4096;

std::vector<Extent> blocks(const test::Source& source, std::uint64_t count) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < count; ++i) extents.push_back(source.at(i * kUnit, kUnit));
  return extents;
}

TEST(PaceTest, IsTheRateOfUseAndFollowsAChange) {
  Pace pace;
  EXPECT_FALSE(pace.rate());
  Nanoseconds now{0};
  pace.record(now, 1000, {});
  EXPECT_FALSE(pace.rate());
  pace.record(now += std::chrono::milliseconds{20}, 1000, {});
  EXPECT_FALSE(pace.rate()) << "it waited for the first copy";
  for (int i = 0; i < 100; ++i) pace.record(now += Nanoseconds{1000}, 1000, {});
  EXPECT_NEAR(pace.rate()->value, 1e9, 1e3);
  for (int i = 0; i < 100; ++i) pace.record(now += Nanoseconds{100}, 1000, {});
  EXPECT_NEAR(pace.rate()->value, 1e10, 1e9);
}

// The pages of a block of 1 MiB, then a pause until the next block.
TEST(PaceTest, OfBursts_IncludesTheirPauses) {
  constexpr double kTrue = (1 << 20) / 7.128e-3;
  Pace pace;
  Nanoseconds now{0};
  for (int burst = 0; burst < 40; ++burst) {
    for (int page = 0; page < 128; ++page) {
      pace.record(now += Nanoseconds{1000}, 8192, std::chrono::milliseconds{3});
      if (burst < 4) continue;
      ASSERT_NEAR(pace.rate()->value, kTrue, kTrue / 3) << burst << " " << page;
    }
    now += std::chrono::milliseconds{7};
  }
}

TEST(PlanTest, TheLimitCoversLeadAndLatencyAtThePaceSeen) {
  PrefetchPlan plan;
  plan.options.lead = std::chrono::milliseconds{10};
  PlanItem item;
  item.bytes.length = 1000;
  EXPECT_EQ(plan.limit(item, Nanoseconds{0}, 1 << 30), 1U << 30);  // no pace yet
  plan.pace.record(std::chrono::milliseconds{-1}, 1, {});
  plan.pace.record(Nanoseconds{0}, 1, {});
  plan.pace.record(std::chrono::milliseconds{1}, 1'000'000, {});  // 1 GB/s
  EXPECT_NEAR(static_cast<double>(plan.limit(item, Nanoseconds{0}, 1 << 30)), 10e6, 1e3);
  const auto slow = plan.limit(item, std::chrono::milliseconds{20}, 1 << 30);
  EXPECT_NEAR(static_cast<double>(slow), 40e6, 1e3);
  EXPECT_EQ(plan.limit(item, Nanoseconds{0}, 5000), 5000u);
  item.bytes.length = 100'000'000;
  EXPECT_EQ(plan.limit(item, Nanoseconds{0}, 1 << 30), 200'000'000u);
}

TEST(PlanTest, ItemBeyondTheLimit_IsHeldUntilItsRunFits) {
  PrefetchPlan plan;
  PlanItem item;
  item.number = 7;
  EXPECT_FALSE(plan.holds(item, 100, 50)) << "nothing is ahead";
  plan.ahead = 60;
  EXPECT_FALSE(plan.holds(item, 40, 100));
  EXPECT_EQ(plan.starts_at, PrefetchPlan::kNow);
  EXPECT_TRUE(plan.holds(item, 41, 100));
  EXPECT_EQ(plan.held, 7u);
  EXPECT_EQ(plan.held_run, 41u);
  EXPECT_EQ(plan.starts_at, 59u);
  EXPECT_TRUE(plan.holds(item, 200, 100));
  EXPECT_EQ(plan.starts_at, 0u) << "when nothing is ahead";
}

// More items than one slice: skipped, passed over, ended and cleared.
TEST(PlanTest, PlanOfManyItems_IsSkippedEndedAndCleared) {
  constexpr std::uint64_t kItems = 50'000;
  test::Source source(kItems * 64);
  test::CacheRig rig({.budget = 1_MiB});
  std::vector<Extent> plan;
  for (std::uint64_t i = 0; i < kItems; ++i) plan.push_back(source.at(i * 64, 64));
  Prefetch prefetch = rig.cache->prefetch(plan, {.window = Bytes{64 * 100}});
  rig.settle();
  {
    const Block jump = rig.cache->access(plan[kItems - 200], {.plan = &prefetch});
  }
  rig.settle();
  // Items at most a window behind the jump are not passed over.
  for (std::uint64_t i = kItems - 299; i < kItems; ++i) {
    EXPECT_EQ(rig.cache->access(plan[i], {.plan = &prefetch}).state(), BlockState::ready) << i;
    rig.settle();
  }
  EXPECT_EQ(prefetch.progress().used, 299u);
  prefetch = rig.cache->prefetch(plan);
  rig.settle();
  EXPECT_GT(prefetch.progress().started, 8192u - 256) << "half of the budget, except for a run";
  EXPECT_LE(prefetch.progress().started, 8192u);
  rig.cache->clear();
  EXPECT_TRUE(prefetch.progress().cancelled);
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
  prefetch = rig.cache->prefetch(std::vector(kItems, plan[0]));
  rig.settle();
  EXPECT_EQ(prefetch.progress().started, 8192u);
  rig.cache->invalidate(plan[0]);
  rig.settle();
  EXPECT_EQ(prefetch.progress().started, 8192u) << "again";
}

TEST(PlanTest, NamedPlan_IgnoresEarlierAccesses) {
  test::Source source(64 * kUnit);
  test::CacheRig rig({.budget = Bytes{64 * kUnit}});
  const auto plan = blocks(source, 64);
  const Prefetch prefetch = rig.cache->prefetch(plan, {.window = Bytes{4 * kUnit}, .named = true});
  rig.settle();
  for (std::size_t i = 0; i < 64; ++i) rig.load(plan[i * 7 % 64]);
  EXPECT_EQ(prefetch.progress().used, 0u);
  for (const Extent& extent : plan) {
    EXPECT_EQ(rig.cache->access(extent, {.plan = &prefetch}).state(), BlockState::ready);
    rig.settle();
  }
  EXPECT_EQ(prefetch.progress().used, 64u);
}

// Only one copy has begun when the consumer passes over the other items.
TEST(PlanTest, QueuedItemsThatArePassedOver_AreNotRead) {
  test::Source source(20 * kUnit);
  test::CacheRig rig({.fake = {.max_in_flight = 1}, .budget = Bytes{64 * kUnit}});
  rig.fake->hold(true);
  const std::vector<Extent> plan = blocks(source, 20);
  const Prefetch prefetch = rig.cache->prefetch(plan, {.window = Bytes{8 * kUnit}});
  const std::size_t begun = rig.fake->accepted().size();
  ASSERT_GE(begun, 1u);
  const Block last = rig.cache->access(source.at(19 * kUnit, kUnit), {.plan = &prefetch});
  const Block kept = rig.cache->access(source.at(7 * kUnit, kUnit));
  rig.fake->hold(false);
  rig.settle();
  std::vector<std::uint64_t> read;
  for (const Piece& piece : rig.fake->accepted()) read.push_back(piece.from.offset / kUnit);
  for (std::uint64_t i = begun; i < 7; ++i) EXPECT_EQ(std::ranges::count(read, i), 0) << i;
  EXPECT_EQ(std::ranges::count(read, 7), 1) << "an access waits for it";
  EXPECT_TRUE(source.equals(plan[7], *kept.wait()));
  EXPECT_TRUE(source.equals(plan[19], *last.wait()));
}

}  // namespace
}  // namespace headrace
