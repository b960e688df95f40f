// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "headrace/placement.h"
#include "place/advice/advice_testing.h"

namespace headrace {
namespace {

TEST(WeightsTest, SmallestWeightsWithinOnePerCent_AreTaken) {
  const std::vector tiers = {queue_of(0, 100, 70e9), queue_of(8, 250, 50e9)};
  const Load load = {.lines = 400};
  const auto best = best_spread(tiers, load);
  const Weights weights = integer_weights(tiers, *best, load);
  ASSERT_TRUE(weights.loss);
  EXPECT_LE(*weights.loss, kWeightLoss);
  const unsigned total = weights.weight[0] + weights.weight[1];
  for (unsigned less = 1; less < total; ++less) {
    for (unsigned slow = 0; slow <= less; ++slow) {
      const double share = static_cast<double>(slow) / less;
      if (std::abs(share - best->share[1]) > 0.5 / less) continue;  // not the result of rounding
      const auto other = predict(tiers, std::vector{1 - share, share}, load);
      EXPECT_LT(other->bandwidth, best->bandwidth * (1 - kWeightLoss));
    }
  }
}

TEST(WeightsTest, ATierThatIsNotUsedHasNone) {
  const std::vector tiers = {queue_of(0, 100, 70e9), queue_of(8, 250, 50e9)};
  const auto best = best_spread(tiers, {.lines = 1});
  EXPECT_EQ(integer_weights(tiers, *best, {.lines = 1}).weight, (std::vector{1u, 0u}));
}

double share_of(const Weights& weights, std::size_t i) {
  const double sum = std::accumulate(weights.weight.begin(), weights.weight.end(), 0.0);
  return weights.weight[i] / sum;
}

TEST(WeightsTest, WeightsStayWithinCapacities) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Tier> tiers;
    const unsigned count = *rc::gen::inRange(2u, 6u);
    double room = 0;
    for (unsigned i = 0; i < count; ++i) {
      tiers.push_back(any_tier(i));
      tiers[i].most_share = *rc::gen::inRange(1, 1001) / 1000.0;
      room += tiers[i].most_share;
    }
    Tier& last = tiers.back();
    last.most_share = std::clamp(1.02 - (room - last.most_share), last.most_share, 1.0);
    const Load load = {.lines = *rc::gen::inRange(1, 3000)};
    const Weights weights = integer_weights(tiers, *best_spread(tiers, load), load);
    for (unsigned i = 0; i < count; ++i) {
      RC_ASSERT(share_of(weights, i) <= tiers[i].most_share + 1e-9);
    }
  }));
}

TEST(WeightsTest, ExceedLimitsThatAddUpToOne) {
  std::vector tiers = {queue_of(0, 100, 70e9), queue_of(8, 250, 50e9)};
  tiers[0].most_share = 0.2463218;
  tiers[1].most_share = 1 - 0.2463218;
  const Load load = {.lines = 80};
  const Weights weights = integer_weights(tiers, *best_spread(tiers, load), load);
  EXPECT_NEAR(share_of(weights, 0), 0.2463218, 0.005);
  ASSERT_TRUE(weights.loss);
  EXPECT_LE(*weights.loss, kWeightLoss);
}

TEST(WeightsTest, NearSaturation_WeightsAreLarge) {
  const std::vector tiers = {tier_of(0, {{1e9, 100}, {69.3e9, 150}, {69.4e9, 500}}),
                             tier_of(8, {{1e9, 250}, {48e9, 400}, {48.1e9, 600}})};
  const Load load = {.demand = 117.45e9};
  const Weights weights = integer_weights(tiers, *best_spread(tiers, load), load);
  ASSERT_TRUE(weights.loss);
  EXPECT_LE(*weights.loss, kWeightLoss);
  EXPECT_GT(weights.weight[0] + weights.weight[1], 100u);
}

TEST(WeightsTest, UnmetDemand_HasNoLoss) {
  // The demand leaves a few thousandths of pages for the second tier, which no weights can express.
  const std::vector tiers = {tier_of(0, {{1e9, 100}, {100e9, 200}}),
                             tier_of(1, {{1e6, 200}, {1e8, 300}})};
  const Load load = {.demand = 100.1e9};
  const Weights weights = integer_weights(tiers, *best_spread(tiers, load), load);
  EXPECT_EQ(weights.loss, std::nullopt);
  EXPECT_LT(weights.spread.bandwidth, 100.1e9);
}

TEST(WeightsTest, FitTheKernelAndSayWhatTheyCost) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Tier> tiers;
    const unsigned count = *rc::gen::inRange(2u, 6u);
    for (unsigned i = 0; i < count; ++i) tiers.push_back(any_tier(i));
    const Load load = {.lines = *rc::gen::inRange(1, 3000)};
    const auto best = best_spread(tiers, load);
    const Weights weights = integer_weights(tiers, *best, load);
    RC_ASSERT(weights.weight.size() == count);
    RC_ASSERT(std::ranges::max(weights.weight) >= 1u);
    RC_ASSERT(std::ranges::max(weights.weight) <= kMaxWeight);
    RC_ASSERT((weights.loss && *weights.loss <= kWeightLoss));
    const double sum = std::accumulate(weights.weight.begin(), weights.weight.end(), 0.0);
    double error = 0;
    for (unsigned i = 0; i < count; ++i) {
      error = std::max(error, std::abs(weights.weight[i] / sum - best->share[i]));
    }
    RC_ASSERT(std::abs(error - weights.share_error) < 1e-9);
  }));
}

}  // namespace
}  // namespace headrace
