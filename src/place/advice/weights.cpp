// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "headrace/advice/interleave.h"
#include "headrace/placement.h"

namespace headrace {
namespace {

// Amounts by which integers may exceed the tiers' limits, tried in this order. If limits add up to
// 1, no small integers keep them exactly.
constexpr double kSlack[] = {0, 0.005, 1};
// Rounding of a share times a number of pages.
constexpr double kRounding = 1e-9;

// Divides `total` pages by the shares, in whole pages within each tier's most_share. The rest from
// rounding down is given to the tiers that lost most. Empty: impossible.
std::vector<unsigned> rounded(std::span<const double> share, std::span<const double> most_share,
                              unsigned total) {
  std::vector<unsigned> weight, most;
  std::vector<std::pair<double, std::size_t>> lost;
  unsigned rest = total;
  for (std::size_t i = 0; i < share.size(); ++i) {
    const double exact = share[i] * total, fitting = std::min(most_share[i], 1.0) * total;
    most.push_back(std::min(static_cast<unsigned>(fitting + kRounding), kMaxWeight));
    weight.push_back(std::min({static_cast<unsigned>(exact + kRounding), most.back(), rest}));
    rest -= weight.back();
    lost.emplace_back(weight.back() - exact, i);
  }
  std::ranges::sort(lost);
  for (bool more = true; rest > 0 && more;) {
    more = false;
    for (const auto& [less, i] : lost) {
      if (rest == 0 || weight[i] == most[i]) continue;
      ++weight[i];
      --rest;
      more = true;
    }
  }
  if (rest > 0) return {};
  return weight;
}

// The loss of bandwidth or gain of latency, as a share; far more if a demand is not met.
double badness(const Spread& spread, const Spread& wanted, const Load& load) {
  const double less = std::max(0.0, 1 - spread.bandwidth / wanted.bandwidth);
  if (load.lines) return less;
  if (!spread.latency_ns) return 1e9 + less;
  return std::max(0.0, *spread.latency_ns / *wanted.latency_ns - 1);
}

// The best weights for tiers that may hold `slack` more than their limits. Empty weights: none
// exist.
Weights search(std::span<const Tier> tiers, const Spread& wanted, const Load& load, double slack) {
  std::vector<Tier> limited(tiers.begin(), tiers.end());
  std::vector<double> holds, serves;
  for (Tier& tier : limited) {
    tier.most_share = std::min(1.0, tier.most_share + slack);
    holds.push_back(tier.most_share);
    const double reach = load.demand ? tier.curve.best() / *load.demand : 1;
    serves.push_back(std::min(tier.most_share, reach));
  }
  Weights best;
  double least = std::numeric_limits<double>::infinity();
  const double largest = std::ranges::max(wanted.share);
  for (unsigned total = 1; total * largest < kMaxWeight + 1; ++total) {
    Weights tried{.weight = rounded(wanted.share, serves, total)};
    if (tried.weight.empty()) tried.weight = rounded(wanted.share, holds, total);
    if (tried.weight.empty()) continue;
    std::vector<double> share;
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      share.push_back(static_cast<double>(tried.weight[i]) / total);
      tried.share_error = std::max(tried.share_error, std::abs(share[i] - wanted.share[i]));
    }
    auto spread = predict(limited, share, load);
    if (!spread) continue;
    const double bad = badness(*spread, wanted, load);
    if (bad >= least) continue;
    least = bad;
    if (load.lines || spread->latency_ns) tried.loss = bad;
    tried.spread = *std::move(spread);
    best = std::move(tried);
    if (least <= kWeightLoss) break;
  }
  return best;
}

}  // namespace

Weights integer_weights(std::span<const Tier> tiers, const Spread& wanted, const Load& load) {
  Weights best;
  for (const double slack : kSlack) {
    if (best.weight.empty()) best = search(tiers, wanted, load, slack);
  }
  return best;
}

}  // namespace headrace
