// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "place/advice/advice_testing.h"
#include "place/advice/tiers.h"

namespace headrace {
namespace {

const std::vector<double> kHalves = {0.5, 0.5};

std::vector<Tier> fast_and_slow() { return {queue_of(0, 100, 70e9), queue_of(8, 250, 50e9)}; }

TEST(SpreadTest, LinesInFlightTakeTheirLatency) {
  const std::vector tiers = {tier_of(0, {{100e9, 100}})};
  const auto spread = predict(tiers, std::vector{1.0}, {.lines = 10});
  EXPECT_NEAR(spread->bandwidth, 10 * 64 / 100e-9, 1);
  EXPECT_NEAR(*spread->latency_ns, 100, 1e-6);
  EXPECT_FALSE(spread->saturated);
}

TEST(SpreadTest, SaturatedTier_LetsRequestsWait) {
  const std::vector tiers = {tier_of(0, {{64e9, 100}})};
  const auto spread = predict(tiers, std::vector{1.0}, {.lines = 1000});
  EXPECT_DOUBLE_EQ(spread->bandwidth, 64e9);
  EXPECT_DOUBLE_EQ(*spread->latency_ns, 1000) << "Little: 1000 lines at 1e9 lines per second";
  EXPECT_TRUE(spread->saturated);
}

TEST(SpreadTest, TheSlowestTierOfASpreadEndsIt) {
  const std::vector tiers = {tier_of(0, {{60e9, 100}}), tier_of(1, {{20e9, 100}})};
  EXPECT_DOUBLE_EQ(predict(tiers, kHalves, {.lines = 1e6})->bandwidth, 40e9);
}

TEST(SpreadTest, ADemandBeyondASpreadHasNoLatency) {
  const std::vector tiers = {tier_of(0, {{60e9, 100}}), tier_of(1, {{20e9, 100}})};
  const auto spread = predict(tiers, kHalves, {.demand = 50e9});
  EXPECT_EQ(spread->latency_ns, std::nullopt);
  EXPECT_DOUBLE_EQ(spread->bandwidth, 40e9);
  EXPECT_TRUE(spread->saturated);
}

TEST(SpreadTest, ADemandBeyondAllIsRefused) {
  const auto refused = best_spread(fast_and_slow(), {.demand = 200e9});
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_EQ(refused.error().message,
            "200 GB/s are asked of these memories, which give 118 GB/s at most");
}

TEST(SpreadTest, InvalidShares_AreRefused) {
  const auto tiers = fast_and_slow();
  const auto code = [&](double a, double b) {
    return predict(tiers, std::vector{a, b}, {.lines = 1}).error().code;
  };
  EXPECT_EQ(code(0.5, 0.6), ErrorCode::invalid);
  EXPECT_EQ(code(-1, 2), ErrorCode::invalid);
  EXPECT_EQ(code(NAN, 1), ErrorCode::invalid);
  std::vector<Tier> limited = fast_and_slow();
  limited[0].most_share = 0.4;
  EXPECT_EQ(predict(limited, kHalves, {.lines = 1}).error().code, ErrorCode::exhausted);
}

TEST(SpreadTest, LittleLoadStaysOnTheNearTierAndMuchIsSpreadByBandwidth) {
  const auto tiers = fast_and_slow();
  EXPECT_EQ(best_spread(tiers, {.lines = 1})->share[1], 0);
  EXPECT_NEAR(best_spread(tiers, {.lines = 1e6})->share[1], 50.0 / 120, 0.001);
}

TEST(SpreadTest, TheBestIsNeverWorseThanAnyOther) {
  EXPECT_TRUE(rc::check([] {
    std::vector tiers = {any_tier(0), any_tier(1)};
    const Load load = {.lines = *rc::gen::inRange(1, 5000)};
    const double best = best_spread(tiers, load)->bandwidth * 1.001;
    for (int k = 0; k <= 20; ++k) {
      RC_ASSERT(predict(tiers, std::vector{1 - k / 20.0, k / 20.0}, load)->bandwidth <= best);
    }
    RC_ASSERT(equal_latency(tiers, load)->bandwidth <= best);
    const double a = tiers[0].curve.best(), b = tiers[1].curve.best();
    RC_ASSERT(predict(tiers, shares_of(std::vector{a, b}), load)->bandwidth <= best);
  }));
}

TEST(SpreadTest, MoreLoadGivesMoreAndNeverFaster) {
  EXPECT_TRUE(rc::check([] {
    const std::vector tiers = {any_tier(0), any_tier(1), any_tier(2)};
    double bandwidth = 0;
    for (const double lines : {1.0, 10.0, 50.0, 200.0, 1000.0, 9000.0}) {
      const auto best = best_spread(tiers, {.lines = lines});
      RC_ASSERT(best->bandwidth >= bandwidth * 0.999);
      bandwidth = best->bandwidth;
    }
    double latency = 0;
    for (int part = 1; part <= 10; ++part) {
      const auto best = best_spread(tiers, {.demand = most_traffic(tiers) * part / 10});
      RC_ASSERT(best->latency_ns.has_value());
      // These curves rise in steps, on which the best may be missed by a little.
      RC_ASSERT(*best->latency_ns >= latency * 0.99);
      latency = *best->latency_ns;
    }
  }));
}

TEST(SpreadTest, ADemandAndItsLinesInFlightAreTheSameLoad) {
  const auto tiers = fast_and_slow();
  const auto open = best_spread(tiers, {.demand = 80e9});
  const auto closed = best_spread(tiers, {.lines = 80e9 * *open->latency_ns / 1e9 / 64});
  EXPECT_NEAR(closed->bandwidth, 80e9, 80e9 * 0.001);
  EXPECT_NEAR(closed->share[1], open->share[1], 0.005);
}

TEST(SpreadTest, EqualLatencyIsEqual) {
  const auto tiers = fast_and_slow();
  const auto spread = equal_latency(tiers, {.demand = 90e9});
  EXPECT_NEAR(tiers[0].curve.latency(spread->tier_bandwidth[0]),
              tiers[1].curve.latency(spread->tier_bandwidth[1]), 1);
  EXPECT_EQ(equal_latency(tiers, {.demand = 10e9})->share[1], 0);
}

TEST(SpreadTest, TheFlipIsWhereASpreadBeginsToHelp) {
  const auto tiers = fast_and_slow();
  const auto flip = demand_flip(tiers);
  ASSERT_TRUE(flip);
  // Marginal latency of a queue is idle / (1 - used)^2, which is 250 ns at used = 0.37.
  EXPECT_GT(flip->bandwidth, 0.37 * 70e9);
  EXPECT_LT(flip->bandwidth, 0.60 * 70e9);
  EXPECT_GT(best_spread(tiers, {.demand = flip->bandwidth})->share[1], 0);
  EXPECT_EQ(demand_flip(std::vector{tiers[0]}), std::nullopt);
}

}  // namespace
}  // namespace headrace
