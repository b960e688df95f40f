#include "cache/plan.h"

#include <gtest/gtest.h>

#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

TEST(PaceTest, IsTheRateOfUseAndFollowsAChange) {
  Pace pace;
  EXPECT_FALSE(pace.rate());
  Nanoseconds now{0};
  pace.record(now, 1000);
  EXPECT_FALSE(pace.rate());
  for (int i = 0; i < 100; ++i) pace.record(now += Nanoseconds{1000}, 1000);
  EXPECT_NEAR(pace.rate()->value, 1e9, 1e3);
  for (int i = 0; i < 100; ++i) pace.record(now += Nanoseconds{100}, 1000);
  EXPECT_NEAR(pace.rate()->value, 1e10, 1e9);
}

TEST(PlanTest, TheLimitCoversLeadAndLatencyAtThePaceSeen) {
  PrefetchPlan plan;
  plan.options.lead = std::chrono::milliseconds{10};
  PlanItem item;
  item.bytes.length = 1000;
  EXPECT_EQ(plan.limit(item, Nanoseconds{0}, 1 << 30), 1U << 30);  // no pace yet
  plan.pace.record(Nanoseconds{0}, 1);
  plan.pace.record(std::chrono::milliseconds{1}, 1'000'000);  // 1 GB/s
  EXPECT_NEAR(static_cast<double>(plan.limit(item, Nanoseconds{0}, 1 << 30)), 10e6, 1e3);
  const auto slow = plan.limit(item, std::chrono::milliseconds{20}, 1 << 30);
  EXPECT_NEAR(static_cast<double>(slow), 40e6, 1e3);
  EXPECT_EQ(plan.limit(item, Nanoseconds{0}, 5000), 5000u);
  item.bytes.length = 100'000'000;
  EXPECT_EQ(plan.limit(item, Nanoseconds{0}, 1 << 30), 200'000'000u);
}

// More than is dealt with at a time: skipped, passed over, ended and cleared.
TEST(PlanTest, PlansOfVeryManyItems) {
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
  // What lies within the window behind it is waited for.
  for (std::uint64_t i = kItems - 299; i < kItems; ++i) {
    EXPECT_EQ(rig.cache->access(plan[i], {.plan = &prefetch}).state(), BlockState::ready) << i;
    rig.settle();
  }
  EXPECT_EQ(prefetch.progress().used, 299u);
  prefetch = rig.cache->prefetch(plan);
  rig.settle();
  EXPECT_GT(prefetch.progress().started, 8192u - 256) << "half of the budget, but for a run";
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

}  // namespace
}  // namespace headrace
