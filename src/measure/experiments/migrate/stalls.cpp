// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/migrate/stalls.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace headrace::experiment_migrate {
namespace {

// How many of wait, wait - interval, wait - 2 interval, ... are at least `least`. Requires: least
// >= interval.
std::uint64_t due_above(std::uint64_t wait, std::uint64_t interval, std::uint64_t least) {
  return wait < least ? 0 : (wait - least) / interval + 1;
}

}  // namespace

std::uint64_t Stalls::count() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

std::optional<std::uint64_t> Stalls::quantile(double q) const {
  CHECK(q >= 0 && q <= 1);
  const std::uint64_t made = count();
  if (made == 0) return std::nullopt;
  // Accesses of one bucket count as equal.
  const auto mean = [&](std::size_t bucket) {
    return std::max<std::uint64_t>(1, sums_[bucket] / counts_[bucket]);
  };
  std::uint64_t interval = 0;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; 2 * seen < made; ++i) {
    seen += counts_[i];
    if (counts_[i] > 0) interval = mean(i);
  }
  // The number of all accesses that waited at least `least`.
  const auto waited = [&](std::uint64_t least) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] == 0) continue;
      const std::uint64_t wait = mean(i);
      const std::uint64_t due = due_above(wait, interval, std::max(least, interval));
      // An access shorter than the interval hid no other.
      const std::uint64_t own = wait >= least ? 1 : 0;
      sum += counts_[i] * std::max(due, own);
    }
    return sum;
  };
  const double allowed = (1 - q) * static_cast<double>(waited(0));
  std::size_t low = 0;
  std::size_t high = Histogram::bucket_of(most_);
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const auto beyond = static_cast<double>(waited(Histogram::upper_edge(middle) + 1));
    if (beyond <= allowed) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::max<std::uint64_t>(1, std::min(Histogram::upper_edge(low), most_));
}

}  // namespace headrace::experiment_migrate
