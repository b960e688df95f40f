// SPDX-License-Identifier: Apache-2.0
#include "headrace/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "headrace/random.h"

namespace headrace {
namespace {

// Requires: samples are sorted and not empty.
double quantile_of_sorted(std::span<const double> sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(rank));
  const auto above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], rank - std::floor(rank));
}

// The lower of the two ranks, from 1. Signs of (sample - median) are fair coins for every
// distribution. Up to 24 samples the ranks are chosen together: by the random walk of heads, the
// chance that the interval of any of 6 to 24 samples misses is 4.98 %. Beyond, by the normal
// approximation: the chance for one number of samples is 5 % or less up to 1200
// (statistics_test.cpp counts both).
std::size_t lower_rank(std::size_t n) {
  struct From {
    std::size_t samples;
    std::size_t rank;
  };
  constexpr std::array kTogether = {From{6, 1}, From{10, 2}, From{14, 3}, From{18, 4}};
  if (n > 24) {
    const auto count = static_cast<double>(n);
    return static_cast<std::size_t>((count + 1 - 1.96 * std::sqrt(count)) / 2);
  }
  std::size_t rank = 0;
  for (const From& from : kTogether) {
    if (n >= from.samples) rank = from.rank;
  }
  return rank;
}

// Medians of `resamples` draws, each of launches and of samples in each launch.
std::vector<double> resampled_medians(std::span<const double> samples,
                                      std::span<const std::size_t> launches, int resamples) {
  std::vector<std::size_t> begins(launches.size());
  std::exclusive_scan(launches.begin(), launches.end(), begins.begin(), std::size_t{0});
  Random random{samples.size()};  // fixed: the same samples give the same interval
  std::vector<double> medians(static_cast<std::size_t>(resamples));
  std::vector<double> drawn;
  for (double& middle : medians) {
    drawn.clear();
    for (std::size_t i = 0; i < launches.size(); ++i) {
      const std::size_t launch = random.below(launches.size());
      for (std::size_t k = 0; k < launches[launch]; ++k) {
        drawn.push_back(samples[begins[launch] + random.below(launches[launch])]);
      }
    }
    const auto upper = drawn.begin() + static_cast<std::ptrdiff_t>(drawn.size() / 2);
    std::ranges::nth_element(drawn, upper);
    middle =
        drawn.size() % 2 == 1 ? *upper : (*upper + *std::max_element(drawn.begin(), upper)) / 2;
  }
  return medians;
}

// The tail on each side of a 95 % bootstrap interval over n launches. Few launches vary less than
// their distribution, by (n - 1) / n, and their variance is uncertain, which Student's t accounts
// for (Hesterberg 2015, "expanded percentile"). By n, from 6; from 20 on the last.
double expanded_tail(std::size_t launches) {
  // Phi(-sqrt(n / (n - 1)) * t(0.975, n - 1))
  constexpr std::array kTails = {0.00243, 0.00411, 0.00574, 0.00722, 0.00855,
                                 0.00972, 0.01076, 0.01167, 0.01248, 0.01321,
                                 0.01386, 0.01444, 0.01497, 0.01544, 0.01588};
  const std::size_t at = launches - kLeastForInterval;
  return kTails[std::min(at, kTails.size() - 1)];
}

Interval range_of_medians(std::span<const double> samples, std::span<const std::size_t> launches) {
  std::vector<double> medians;
  for (const std::size_t count : launches) {
    medians.push_back(*median(samples.first(count)));
    samples = samples.subspan(count);
  }
  const auto [low, high] = std::ranges::minmax(medians);
  return {low, high};
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

std::optional<Interval> median_interval(std::span<const double> samples) {
  if (samples.size() < kLeastForInterval) return std::nullopt;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const std::size_t rank = lower_rank(sorted.size());
  return Interval{sorted[rank - 1], sorted[sorted.size() - rank]};
}

std::optional<Interval> launch_interval(std::span<const double> samples,
                                        std::span<const std::size_t> launches, int resamples) {
  CHECK(resamples > 0 && std::ranges::find(launches, 0u) == launches.end());
  CHECK(std::accumulate(launches.begin(), launches.end(), std::size_t{0}) == samples.size());
  if (launches.size() < kLeastForInterval) return std::nullopt;
  std::vector<double> medians = resampled_medians(samples, launches, resamples);
  std::ranges::sort(medians);
  const double tail = expanded_tail(launches.size());
  return Interval{quantile_of_sorted(medians, tail), quantile_of_sorted(medians, 1 - tail)};
}

std::optional<Summary> summarize(std::span<const double> samples,
                                 std::span<const std::size_t> launches) {
  if (samples.empty()) return std::nullopt;
  const auto [min, max] = std::ranges::minmax(samples);
  Summary summary{.runs = samples.size(),
                  .median = *median(samples),
                  .mad = *median_absolute_deviation(samples),
                  .min = min,
                  .max = max,
                  .interval = {min, max},
                  .launches = std::max<std::size_t>(1, launches.size())};
  std::optional<Interval> found;
  if (summary.launches == 1) {
    found = median_interval(samples);
  } else {
    found = launch_interval(samples, launches);
    if (!found) summary.interval = range_of_medians(samples, launches);
  }
  if (found) {
    summary.interval = *found;
    summary.coverage = kCoverage;
  }
  return summary;
}

std::string interval_words(const Summary& summary) {
  if (summary.runs == 0) return "unknown";
  const bool several = summary.launches > 1;
  const std::string count =
      fmt::format("{}{}", several ? summary.launches : summary.runs, several ? " launches" : "");
  if (!summary.coverage) return "range of " + count;
  return fmt::format("{:.0f} %{}", *summary.coverage * 100, several ? " of " + count : "");
}

}  // namespace headrace
