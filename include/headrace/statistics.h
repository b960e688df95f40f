// SPDX-License-Identifier: Apache-2.0
// Summaries of repeated measurements.
//
// Times on a shared machine have a floor (the work) and a long tail (neighbours, interrupts), so
// they are summarised by the median and the median absolute deviation (MAD), which ignore up to
// half of the samples being disturbed; mean and standard deviation would report the disturbance.
// Intervals are of the median and assume no distribution: two of the samples themselves, or, of
// several launches of a program, a bootstrap over launches. Fewer than six samples, or launches,
// have no interval but a range (docs/design/intervals.md). Not a significance test between two sets
// (that is `compare` of headrace/profile.h).
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

// The value with half of the samples on each side; mean of the middle two when their number is
// even. Nothing for no samples.
std::optional<double> median(std::span<const double> samples);

// Median of |sample - median|: spread that a few outliers cannot move. Unscaled (for a normal
// distribution sigma is about 1.4826 x MAD). Nothing for no samples.
std::optional<double> median_absolute_deviation(std::span<const double> samples);

// The q-quantile, 0 <= q <= 1, linear between the two nearest ranks (type 7 of Hyndman and Fan,
// 1996, as NumPy). Nothing for no samples.
std::optional<double> quantile(std::span<const double> samples, double q);

struct Interval {
  double low = 0;
  double high = 0;
};

// So many samples, or launches, an interval takes: all of five lie on one side of the median once
// in 16 times.
inline constexpr std::size_t kLeastForInterval = 6;
// What an interval states: the chance that it holds the true median is at least this.
inline constexpr double kCoverage = 0.95;

// The samples at two ranks that hold the median of what they are drawn from, with a chance of
// kCoverage or more if they are independent, whatever their distribution. Up to 24 samples that is
// so for all numbers of samples at once, that is also for who looked at the interval of 6, 7, ...
// of them and went on as long as it was wide. Nothing below kLeastForInterval.
std::optional<Interval> median_interval(std::span<const double> samples);

// The same where the samples come from launches of a program, which differ from each other by more
// than samples of one do: `launches` are their numbers of samples, in order. The expanded
// percentile bootstrap (Hesterberg 2015) of the median, which draws launches and then samples in
// each; the same for the same samples. Nothing below kLeastForInterval launches. Requires: the sum
// of `launches` is the number of samples, none is 0.
std::optional<Interval> launch_interval(std::span<const double> samples,
                                        std::span<const std::size_t> launches,
                                        int resamples = 1000);

// Centre and spread of one measurement, as tables and JSON print it.
struct Summary {
  std::size_t runs = 0;
  double median = 0;
  double mad = 0;
  double min = 0;
  double max = 0;
  // An interval of the median where there is a coverage; else the range of the samples, or of the
  // launches' medians.
  Interval interval;
  // The stated chance that `interval` holds the true median; nothing: of too few for one.
  std::optional<double> coverage;
  std::size_t launches = 1;  // that the runs are of
};

// What its interval is: "95 %", "range of 3", "95 % of 6 launches", "range of 3 launches";
// "unknown" without runs.
std::string interval_words(const Summary& summary);

// Nothing for no samples. `launches`: as above; none or one: the samples are of one.
std::optional<Summary> summarize(std::span<const double> samples,
                                 std::span<const std::size_t> launches = {});

}  // namespace HEADRACE_API headrace
