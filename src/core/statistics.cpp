#include "headrace/statistics.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace headrace {
namespace {

// Requires: samples are sorted and not empty.
double quantile_of_sorted(std::span<const double> sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(rank));
  const auto above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], rank - std::floor(rank));
}

}  // namespace

std::optional<double> quantile(std::span<const double> samples, double q) {
  CHECK(q >= 0 && q <= 1);
  if (samples.empty()) return std::nullopt;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  return quantile_of_sorted(sorted, q);
}

std::optional<double> median(std::span<const double> samples) { return quantile(samples, 0.5); }

std::optional<double> median_absolute_deviation(std::span<const double> samples) {
  const auto centre = median(samples);
  if (!centre) return std::nullopt;
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  for (double sample : samples) deviations.push_back(std::abs(sample - *centre));
  return median(deviations);
}

std::optional<Interval> bootstrap_median_interval(std::span<const double> samples, Random& random,
                                                  double confidence, int resamples) {
  CHECK(confidence > 0 && confidence < 1 && resamples > 0);
  if (samples.empty()) return std::nullopt;
  std::vector<double> medians(static_cast<std::size_t>(resamples));
  std::vector<double> resample(samples.size());
  for (double& m : medians) {
    for (double& sample : resample) sample = samples[random.below(samples.size())];
    m = *median(resample);
  }
  std::ranges::sort(medians);
  const double tail = (1 - confidence) / 2;
  return Interval{quantile_of_sorted(medians, tail), quantile_of_sorted(medians, 1 - tail)};
}

std::optional<Summary> summarize(std::span<const double> samples) {
  if (samples.empty()) return std::nullopt;
  const auto [min, max] = std::ranges::minmax(samples);
  Random random{samples.size()};  // fixed: a summary of the same samples is the same summary
  return Summary{.runs = samples.size(),
                 .median = *median(samples),
                 .mad = *median_absolute_deviation(samples),
                 .min = min,
                 .max = max,
                 .interval95 = *bootstrap_median_interval(samples, random)};
}

}  // namespace headrace
