// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "place/advice/advice_testing.h"
#include "place/advice/tiers.h"

namespace headrace {
namespace {

double cost(const std::vector<Tier>& tiers, std::vector<double> share, double total) {
  for (double& each : share) each *= total;
  return in_flight(tiers, share);
}

// d(b L(b))/db of a tier at its traffic.
double marginal(const Tier& tier, double bandwidth) {
  const double step = tier.curve.best() * 1e-3;
  return (in_flight(tier, bandwidth + step) - in_flight(tier, bandwidth - step)) / (2 * step) * 1e9;
}

TEST(CheapestTest, MarginalLatenciesOfTiersInUseAreEqual) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Tier> tiers;
    const unsigned count = *rc::gen::inRange(2u, 5u);
    for (unsigned i = 0; i < count; ++i) {
      tiers.push_back(queue_of(i, *rc::gen::inRange(80, 500), *rc::gen::inRange(20, 200) * 1e9));
    }
    const double total = most_traffic(tiers) * *rc::gen::inRange(5, 80) / 100;
    const auto share = cheapest(tiers, total);
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (share[i] * total < tiers[i].curve.best() * 0.02) continue;
      least = std::min(least, marginal(tiers[i], share[i] * total));
      most = std::max(most, marginal(tiers[i], share[i] * total));
    }
    RC_ASSERT(most <= least * 1.1);
    for (unsigned i = 0; i < count; ++i) {  // an unused tier would cost more
      if (share[i] == 0) RC_ASSERT(tiers[i].curve.idle_ns() >= least * 0.9);
    }
  }));
}

// The answer for queues is known: idle / (1 - used)^2 is equal. It lies between points of the grid
// of shares and of the curves, which only the hulls reach.
TEST(CheapestTest, SharesOfQueues_AreExact) {
  const auto queue = [](unsigned node, double idle_ns, double best) {
    std::vector<LoadedPoint> points;
    for (int i = 1; i <= 200; ++i) {
      const double used = 0.75 * i / 200;
      points.push_back({used * best, idle_ns / (1 - used)});
    }
    return tier_of(node, points);
  };
  const std::vector tiers = {queue(0, 100, 70e9), queue(1, 225, 50e9)};
  for (const double used : {0.42, 0.5, 0.57, 0.61, 0.7}) {
    const double other = 1 - 1.5 * (1 - used), total = used * 70e9 + other * 50e9;
    EXPECT_NEAR(cheapest(tiers, total)[1], other * 50e9 / total, 5e-4) << used;
  }
}

// Past a sudden rise the first tier is flat. All of it, rise included, costs less than the second
// tier from a fifth of its best on. Only the hull sees this.
TEST(CheapestTest, PiecesOfTheHullAreFilledInTheOrderOfTheirSlope) {
  const std::vector tiers = {tier_of(0, {{10e9, 100}, {14e9, 200}, {60e9, 210}}),
                             queue_of(1, 150, 50e9)};
  const auto filled = equal_marginal(tiers, 70e9);
  EXPECT_NEAR(filled[0], 60e9, 1);
  EXPECT_NEAR(filled[1], 10e9, 1);
  const auto less = equal_marginal(tiers, 15e9);  // 150 / (1 - used)^2 is below 232
  EXPECT_NEAR(less[0], 10e9, 1);
  EXPECT_NEAR(less[1], 5e9, 1);
}

TEST(CheapestTest, NoSpreadOfTwoOnAGridIsCheaper) {
  EXPECT_TRUE(rc::check([] {
    const std::vector tiers = {any_tier(0), any_tier(1)};
    const double total = most_traffic(tiers) * *rc::gen::inRange(1, 100) / 100;
    const double best = cost(tiers, cheapest(tiers, total), total);
    for (int k = 0; k <= 200; ++k) {
      const double share = k / 200.0;
      if (share * total > tiers[1].curve.best()) continue;
      if ((1 - share) * total > tiers[0].curve.best()) continue;
      RC_ASSERT(best <= cost(tiers, {1 - share, share}, total) * 1.001);
    }
  }));
}

TEST(CheapestTest, SharesAreWhatFits) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Tier> tiers = {any_tier(0), any_tier(1), any_tier(2)};
    tiers[0].most_share = *rc::gen::inRange(1, 100) / 100.0;
    tiers[1].most_share = *rc::gen::inRange(1, 100) / 100.0;
    const double total = most_traffic(tiers) * *rc::gen::inRange(1, 100) / 100;
    const auto share = cheapest(tiers, total);
    RC_ASSERT(std::abs(std::accumulate(share.begin(), share.end(), 0.0) - 1) < 1e-9);
    for (std::size_t i = 0; i < 3; ++i) {
      RC_ASSERT(share[i] >= 0);
      RC_ASSERT(share[i] <= tiers[i].most_share + 1e-6);
      RC_ASSERT(share[i] * total <= tiers[i].curve.best() * (1 + 1e-6));
    }
  }));
}

// A bend the other way: from 50 on, 100 costs no more. Equal marginal latency alone misses this.
TEST(CheapestTest, SeesPastABend) {
  const std::vector tiers = {tier_of(0, {{50, 100}, {51, 200}, {100, 200}}),
                             tier_of(1, {{50, 150}, {51, 1000}, {100, 1000}})};
  const auto share = cheapest(tiers, 100);
  EXPECT_NEAR(cost(tiers, share, 100), (50 * 100 + 50 * 150) / 1e9, 1e-9);
}

}  // namespace
}  // namespace headrace
