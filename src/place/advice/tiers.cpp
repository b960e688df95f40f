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

Status check_load(std::span<const Tier> tiers, const Load& load) {
  if (load.demand.has_value() == load.lines.has_value()) {
    return fail(ErrorCode::invalid, "a load is a demand or lines in flight; give one of them");
  }
  const double given = load.demand ? *load.demand : *load.lines;
  if (!std::isfinite(given) || given <= 0) {
    return fail(ErrorCode::invalid, "a load of {}; give a positive number", given);
  }
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
