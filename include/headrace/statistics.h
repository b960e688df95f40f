// SPDX-License-Identifier: Apache-2.0
// Summaries of repeated measurements.
//
// Times on a shared machine have a floor (the work) and a long tail (neighbours, interrupts). The
// median and the median absolute deviation (MAD) tolerate disturbance of up to half of the samples.
// Mean and standard deviation would report the disturbance.
//
// Intervals are of the median and assume no distribution. Each is two of the samples, or, for
// several launches of a program, a bootstrap over launches. Fewer than six samples, or launches,
// have a range instead of an interval (docs/design/intervals.md). For a significance test between
// two sets see `compare` in headrace/profile.h.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

// The value with half of the samples on each side; the mean of the middle two if their number is
// even. Nothing: no samples.
std::optional<double> median(std::span<const double> samples);

// Median of |sample - median|: a spread that a few outliers cannot change. Unscaled (sigma of a
// normal distribution is about 1.4826 x MAD). Nothing: no samples.
std::optional<double> median_absolute_deviation(std::span<const double> samples);

// The q-quantile, 0 <= q <= 1, linear between the two nearest ranks (type 7 of Hyndman and Fan,
// 1996, as in NumPy). Nothing: no samples.
std::optional<double> quantile(std::span<const double> samples, double q);

struct Interval {
  double low = 0;
  double high = 0;
};

// The least number of samples, or launches, for an interval. Fewer are too few: five samples are
// all on one side of the median once in 16 times.
inline constexpr std::size_t kLeastForInterval = 6;
// The least chance that an interval contains the true median.
inline constexpr double kCoverage = 0.95;

// Two of the samples as an interval. It contains the median of their distribution with a chance of
// at least kCoverage if they are independent, whatever the distribution. Up to 24 samples the
// chance holds for all numbers of samples at once, so it also holds if the caller looks after 6, 7,
// ... samples and continues while the interval is wide. Nothing: fewer than kLeastForInterval.
std::optional<Interval> median_interval(std::span<const double> samples);

// The same for samples from several launches of a program, which differ more than samples of one
// launch. `launches` holds the number of samples per launch, in order. The expanded percentile
// bootstrap (Hesterberg 2015) of the median, which draws launches and then samples in each.
// Deterministic: equal samples give equal intervals. Nothing: fewer than kLeastForInterval
// launches. Requires: the sum of `launches` is the number of samples, none is 0.
std::optional<Interval> launch_interval(std::span<const double> samples,
                                        std::span<const std::size_t> launches,
                                        int resamples = 1000);

// Centre and spread of one measurement, as printed in tables and JSON.
struct Summary {
  std::size_t runs = 0;
  double median = 0;
  double mad = 0;
  double min = 0;
  double max = 0;
  // An interval of the median if `coverage` has a value; else the range of the samples, or of the
  // launches' medians.
  Interval interval;
  // The least chance that `interval` contains the true median. Nothing: too few samples.
  std::optional<double> coverage;
  std::size_t launches = 1;  // number of launches of the runs
};

// The meaning of its interval: "95 %", "range of 3", "95 % of 6 launches", "range of 3 launches";
// "unknown" without runs.
std::string interval_words(const Summary& summary);

// Nothing: no samples. `launches`: as above; none or one: all samples are from one launch.
std::optional<Summary> summarize(std::span<const double> samples,
                                 std::span<const std::size_t> launches = {});

}  // namespace HEADRACE_API headrace
