// SPDX-License-Identifier: Apache-2.0
// The effect of a spread, and the best spread: the closed-loop model of docs/design/advice.md.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/check.h"
#include "core/fail.h"
#include "place/advice/tiers.h"

namespace headrace {
namespace {

constexpr double kExact = 1e-9;
constexpr int kBisections = 60;

// The largest x in [low, high] for which `holds`, which is true below some point and false above
// it.
template <class Holds>
double last(double low, double high, Holds holds) {
  if (holds(high)) return high;
  for (int step = 0; step < kBisections; ++step) {
    const double middle = (low + high) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

std::vector<double> scaled(std::span<const double> share, double total) {
  std::vector<double> bandwidths(share.begin(), share.end());
  for (double& each : bandwidths) each *= total;
  return bandwidths;
}

Status check_share(std::span<const Tier> tiers, std::span<const double> share) {
  CHECK(tiers.size() == share.size());
  double sum = 0;
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    if (!std::isfinite(share[i]) || share[i] < 0) {
      return fail(ErrorCode::invalid, "a share of {}; shares are 0 to 1", share[i]);
    }
    if (share[i] > tiers[i].most_share + kExact) {
      return fail(ErrorCode::exhausted, "node {} holds at most {:.1f} % of the data",
                  raw(tiers[i].node), tiers[i].most_share * 100);
    }
    sum += share[i];
  }
  if (std::abs(sum - 1) > 1e-6) {
    return fail(ErrorCode::invalid, "shares that add up to {}; they are parts of 1", sum);
  }
  return {};
}

// More bandwidth with lines in flight, less latency at a demand.
bool better(const Spread& a, const Spread& b) {
  if (a.latency_ns.has_value() != b.latency_ns.has_value()) return a.latency_ns.has_value();
  const double gain = a.bandwidth / b.bandwidth - 1;
  if (std::abs(gain) > kExact) return gain > 0;
  return a.latency_ns && *a.latency_ns < *b.latency_ns;
}

Status check_demand(std::span<const Tier> tiers, const Load& load) {
  const double most = most_traffic(tiers);
  if (!load.demand || *load.demand <= most * (1 + kExact)) return {};
  return fail(ErrorCode::exhausted, "{} are asked of these memories, which give {} at most",
              to_string(BytesPerSecond{*load.demand}), to_string(BytesPerSecond{most}));
}

}  // namespace

Result<Spread> predict(std::span<const Tier> tiers, std::span<const double> share,
                       const Load& load) {
  HEADRACE_TRY_STATUS(check_load(tiers, load));
  HEADRACE_TRY_STATUS(check_share(tiers, share));
  double most = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    if (share[i] > 0) most = std::min(most, tiers[i].curve.best() / share[i]);
  }
  const auto bytes = [&](double total) { return in_flight(tiers, scaled(share, total)); };
  Spread spread{.share = {share.begin(), share.end()}, .bandwidth = most};
  if (load.demand) {
    spread.bandwidth = std::min(*load.demand, most);
    spread.saturated = *load.demand >= most * (1 - kExact);
    if (*load.demand <= most * (1 + kExact)) {
      spread.latency_ns = bytes(spread.bandwidth) / spread.bandwidth * 1e9;
    }
  } else {
    const double flying = *load.lines * kLineBytes;
    spread.saturated = bytes(most) <= flying;
    if (!spread.saturated) {
      spread.bandwidth = last(0, most, [&](double total) { return bytes(total) <= flying; });
    }
    // Little's law, including the requests that wait at a saturated tier.
    spread.latency_ns = flying / spread.bandwidth * 1e9;
  }
  spread.tier_bandwidth = scaled(share, spread.bandwidth);
  return spread;
}

Result<Spread> equal_latency(std::span<const Tier> tiers, const Load& load) {
  HEADRACE_TRY_STATUS(check_load(tiers, load));
  HEADRACE_TRY_STATUS(check_demand(tiers, load));
  const double most = most_traffic(tiers);
  // The total traffic when each tier has this latency: the demand, or the lines in flight divided
  // by the latency.
  const auto wanted = [&](double latency_ns) {
    if (load.demand) return std::min(*load.demand, most);
    return std::min(*load.lines * kLineBytes / latency_ns * 1e9, most);
  };
  const auto taken = [&](double latency_ns) {
    std::vector<double> each;
    for (const Tier& tier : tiers) {
      const double reached = tier.curve.reached(latency_ns);
      each.push_back(std::min(reached, tier.most_share * wanted(latency_ns)));
    }
    return each;
  };
  const auto sum = [](const auto& each) { return std::accumulate(each.begin(), each.end(), 0.0); };
  double highest = 0;
  for (const Tier& tier : tiers) highest = std::max(highest, tier.curve.points().back().latency_ns);
  const double below = last(0, highest, [&](double latency_ns) {
    return latency_ns <= 0 || sum(taken(latency_ns)) < wanted(latency_ns);
  });
  // At its idle latency a tier jumps to its first point's bandwidth, of which it takes a part.
  std::vector<double> each = taken(below);
  const double above_ns = std::min(below * (1 + 1e-12) + 1e-9, highest);
  const std::vector<double> above = taken(above_ns);
  const double gap = sum(above) - sum(each), lacking = wanted(above_ns) - sum(each);
  const double part = gap > 0 ? std::clamp(lacking / gap, 0.0, 1.0) : 1;
  for (std::size_t i = 0; i < each.size(); ++i) each[i] += part * (above[i] - each[i]);
  return predict(tiers, shares_of(each), load);
}

Result<Spread> best_spread(std::span<const Tier> tiers, const Load& load) {
  HEADRACE_TRY_STATUS(check_load(tiers, load));
  HEADRACE_TRY_STATUS(check_demand(tiers, load));
  const double most = most_traffic(tiers);
  double total = load.demand ? std::min(*load.demand, most) : most;
  if (load.lines) {
    total = last(0, most, [&](double tried) {
      if (tried <= 0) return true;
      return in_flight(tiers, scaled(cheapest(tiers, tried), tried)) <= *load.lines * kLineBytes;
    });
    // Fewer lines in flight than 1 byte per second needs: any tiny traffic is right.
    if (total <= 0) total = most * kExact;
  }
  HEADRACE_TRY(Spread best, predict(tiers, cheapest(tiers, total), load));
  // Where curves bend the other way, the bests may lie between points of the grid.
  std::vector<double> bests;
  for (const Tier& tier : tiers) bests.push_back(tier.curve.best());
  for (const auto& other : {equal_latency(tiers, load), predict(tiers, shares_of(bests), load)}) {
    if (other && better(*other, best)) best = *other;
  }
  return best;
}

std::optional<Flip> demand_flip(std::span<const Tier> tiers) {
  constexpr int kSteps = 200;
  if (tiers.size() < 2 || most_traffic(tiers) <= 0) return std::nullopt;
  const Tier& first = tiers.front();
  if (first.most_share < 1) return Flip{};  // the data does not fit on it alone
  const double best = first.curve.best();
  for (int step = 1; step <= kSteps; ++step) {
    const double total = best * step / kSteps;
    const double alone = in_flight(first, total);
    const double spread = in_flight(tiers, scaled(cheapest(tiers, total), total));
    if (spread < alone * (1 - kFlipGain)) return Flip{total, alone / kLineBytes};
  }
  if (most_traffic(tiers) <= best * (1 + kExact)) return std::nullopt;
  return Flip{best, in_flight(first, best) / kLineBytes};
}

}  // namespace headrace
