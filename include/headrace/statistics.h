// Summaries of repeated measurements.
//
// Times on a shared machine have a floor (the work) and a long tail (neighbours, interrupts), so
// they are summarised by the median and the median absolute deviation (MAD), which ignore up to
// half of the samples being disturbed; mean and standard deviation would report the disturbance.
// The interval is a percentile bootstrap of the median: it assumes no distribution and needs no
// tables for small n. Not a significance test between two sets (see `compare`, a later concept).
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "headrace/export.h"
#include "headrace/random.h"

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

// Percentile bootstrap of the median (Efron 1979): resample with replacement, take the middle
// `confidence` of the medians. Deterministic for a given `random`. Nothing for no samples.
std::optional<Interval> bootstrap_median_interval(std::span<const double> samples, Random& random,
                                                  double confidence = 0.95, int resamples = 1000);

// Centre and spread of one measurement, as tables and JSON print it.
struct Summary {
  std::size_t runs = 0;
  double median = 0;
  double mad = 0;
  double min = 0;
  double max = 0;
  Interval interval95;
};

// Nothing for no samples.
std::optional<Summary> summarize(std::span<const double> samples);

}  // namespace HEADRACE_API headrace
