// SPDX-License-Identifier: Apache-2.0
#include "place/advice/tiers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/fail.h"

namespace headrace {

double in_flight(const Tier& tier, double bandwidth) {
  return bandwidth * tier.curve.latency(bandwidth) / 1e9;
}

double in_flight(std::span<const Tier> tiers, std::span<const double> bandwidths) {
  double sum = 0;
  for (std::size_t i = 0; i < tiers.size(); ++i) sum += in_flight(tiers[i], bandwidths[i]);
  return sum;
}

double most_of(const Tier& tier, double total) {
  return std::min(tier.curve.best(), tier.most_share * total);
}

double most_traffic(std::span<const Tier> tiers) {
  double high = 0;
  for (const Tier& tier : tiers) high += tier.curve.best();
  const auto fits = [&](double total) {
    double taken = 0;
    for (const Tier& tier : tiers) taken += most_of(tier, total);
    return taken >= total * (1 - 1e-12);
  };
  if (fits(high)) return high;
  double low = 0;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

Status check_load(const Load& load) {
  constexpr double kLeastLines = 1e-3, kMostDemand = 1e18;
  if (load.demand.has_value() == load.lines.has_value()) {
    return fail(ErrorCode::invalid, "a load is a demand or lines in flight; give one of them");
  }
  const auto in = [](double value, double least, double most) {
    return value >= least && value <= most;  // false for NaN
  };
  if (load.lines && !in(*load.lines, kLeastLines, kMostLines)) {
    return fail(ErrorCode::invalid, "{} lines in flight are no load; give {} to {}", *load.lines,
                kLeastLines, kMostLines);
  }
  if (load.demand && !in(*load.demand, 1, kMostDemand)) {
    return fail(ErrorCode::invalid, "a demand of {} B/s is none; give 1 to {}", *load.demand,
                kMostDemand);
  }
  return {};
}

Status check_load(std::span<const Tier> tiers, const Load& load) {
  HEADRACE_TRY_STATUS(check_load(load));
  double room = 0;
  for (const Tier& tier : tiers) room += std::clamp(tier.most_share, 0.0, 1.0);
  if (tiers.empty()) return fail(ErrorCode::absent, "no memory to spread over; name one");
  if (room < 1 - 1e-9) {
    return fail(ErrorCode::exhausted,
                "the memories hold {:.0f} % of the data; take a smaller data set or more memory",
                room * 100);
  }
  return {};
}

std::vector<double> shares_of(std::span<const double> bandwidths) {
  const double sum = std::accumulate(bandwidths.begin(), bandwidths.end(), 0.0);
  std::vector<double> share(bandwidths.begin(), bandwidths.end());
  for (double& each : share) each /= sum;
  return share;
}

}  // namespace headrace
