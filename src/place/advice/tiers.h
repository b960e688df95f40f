// SPDX-License-Identifier: Apache-2.0
// Functions that the solvers share: the traffic of tiers and its cost, in bytes per second and
// nanoseconds.
#pragma once

#include <span>
#include <vector>

#include "headrace/advice/interleave.h"

namespace headrace {

// Bytes in flight at this bandwidth, by Little's law: bandwidth times latency. The best spread
// minimises the sum over tiers.
double in_flight(const Tier& tier, double bandwidth);
double in_flight(std::span<const Tier> tiers, std::span<const double> bandwidths);

// The largest part of a traffic of `total` that a tier can take: its best, or its share of the
// data.
double most_of(const Tier& tier, double total);

// The largest traffic of all tiers together, if the data is spread as it fits.
double most_traffic(std::span<const Tier> tiers);

// Errors: invalid: not exactly one number within its bounds.
Status check_load(const Load& load);
// The same; also refuses an empty list of tiers, and data that does not fit.
Status check_load(std::span<const Tier> tiers, const Load& load);

// Bandwidths that add up to `total`, by filling the pieces of the lower convex hulls of b L(b) in
// the order of their slope: the least cost if every b L(b) is convex.
std::vector<double> equal_marginal(std::span<const Tier> tiers, double total);

// The shares with the fewest bytes in flight. Requires: the tiers can take this traffic.
std::vector<double> cheapest(std::span<const Tier> tiers, double total);

// The shares that these bandwidths are of their sum.
std::vector<double> shares_of(std::span<const double> bandwidths);

}  // namespace headrace
