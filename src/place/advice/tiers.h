// SPDX-License-Identifier: Apache-2.0
// What the solvers share: the traffic that tiers can take, and what it costs. All in bytes per
// second and nanoseconds.
#pragma once

#include <span>
#include <vector>

#include "headrace/advice/interleave.h"

namespace headrace {

// Bytes in flight when a tier gives so much: by Little's law what an access waits times how many
// there are. The sum over tiers is what the best spread makes least.
double in_flight(const Tier& tier, double bandwidth);
double in_flight(std::span<const Tier> tiers, std::span<const double> bandwidths);

// What a tier can take of a traffic of `total`: its best, or what its share of the data asks for.
double most_of(const Tier& tier, double total);

// The most traffic that the tiers take together, with the data set spread as it fits.
double most_traffic(std::span<const Tier> tiers);

// Refuses a load that is not one number within its bounds.
Status check_load(const Load& load);
// And no tiers, and data that does not fit.
Status check_load(std::span<const Tier> tiers, const Load& load);

// Bandwidths that add up to `total`, by filling the pieces of the lower convex hulls of b L(b) in
// the order of their slope: what costs least where every b L(b) is convex.
std::vector<double> equal_marginal(std::span<const Tier> tiers, double total);

// The shares that cost least bytes in flight, for a traffic that the tiers can take.
std::vector<double> cheapest(std::span<const Tier> tiers, double total);

// Shares of these bandwidths.
std::vector<double> shares_of(std::span<const double> bandwidths);

}  // namespace headrace
