#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "headrace/placement.h"
#include "place/advice/advice_testing.h"

namespace headrace {
namespace {

TEST(WeightsTest, AreTheSmallestThatCostAPerCentAtMost) {
  const std::vector tiers = {queue_of(0, 100, 70e9), queue_of(8, 250, 50e9)};
  const Load load = {.lines = 400};
  const auto best = best_spread(tiers, load);
  const Weights weights = integer_weights(tiers, *best, load);
  EXPECT_LE(weights.loss, kWeightLoss);
  const unsigned total = weights.weight[0] + weights.weight[1];
  for (unsigned less = 1; less < total; ++less) {
    for (unsigned slow = 0; slow <= less; ++slow) {
      const double share = static_cast<double>(slow) / less;
      if (std::abs(share - best->share[1]) > 0.5 / less) continue;  // not what rounding gives
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
    RC_ASSERT(weights.loss <= 0.02);
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
