// What samples of a rate come down to in a row: centre, spread, ratio. Thread-compatible.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "headrace/units.h"

namespace headrace {

// Median and MAD / median: on a shared machine a rate has a ceiling and a long tail below it, which
// the median passes over (statistics.h). Nothing for no samples.
struct RateSummary {
  BytesPerSecond rate;
  double spread = 0;
};
std::optional<RateSummary> summarize_rates(std::span<const double> bytes_per_second);

// Median of own[i] / reference[i]: measured in the same round, both saw the same machine, so that
// the ratio is steadier than the ratio of medians. Nothing for no samples or unequal numbers.
std::optional<double> paired_ratio(std::span<const double> own, std::span<const double> reference);

}  // namespace headrace
