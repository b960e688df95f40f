#include "cache/plan.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace headrace
