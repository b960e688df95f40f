#include "headrace/statistics.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace {

using Samples = std::vector<double>;

TEST(Statistics, NothingComesOfNothing) {
  Random random{1};
  EXPECT_FALSE(median(Samples{}));
  EXPECT_FALSE(median_absolute_deviation(Samples{}));
  EXPECT_FALSE(quantile(Samples{}, 0.5));
  EXPECT_FALSE(bootstrap_median_interval(Samples{}, random));
  EXPECT_FALSE(summarize(Samples{}));
}

TEST(Statistics, MedianIsTheMiddle) {
  EXPECT_EQ(median(Samples{3, 1, 2}), 2);
  EXPECT_EQ(median(Samples{4, 1, 2, 3}), 2.5);
}

TEST(Statistics, QuantilesInterpolateAsNumPyDoes) {
  const Samples samples{10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(*quantile(samples, 0), 10);
  EXPECT_DOUBLE_EQ(*quantile(samples, 1), 40);
  EXPECT_DOUBLE_EQ(*quantile(samples, 0.9), 37);  // numpy.quantile(samples, 0.9)
}

TEST(Statistics, MadIgnoresAnOutlier) {
  EXPECT_EQ(median_absolute_deviation(Samples{1, 2, 3, 4, 5}), 1);
  EXPECT_EQ(median_absolute_deviation(Samples{1, 2, 3, 4, 5000}), 1);
}

TEST(Statistics, BootstrapIntervalHoldsTheMedianAndNarrowsWithSamples) {
  Random random{11};
  auto width = [&](std::size_t n) {
    Samples samples(n);
    for (double& sample : samples) sample = random.unit();
    const auto interval = *bootstrap_median_interval(samples, random);
    EXPECT_LE(interval.low, *median(samples));
    EXPECT_GE(interval.high, *median(samples));
    return interval.high - interval.low;
  };
  EXPECT_GT(width(10), width(1000));
}

// The promise of a 95 % interval: over many experiments it holds the true median about that often.
// The percentile bootstrap is known to be a little too narrow for small samples.
TEST(Statistics, BootstrapIntervalCoversTheTruth) {
  Random random{5};
  int covered = 0;
  constexpr int kExperiments = 400;
  for (int e = 0; e < kExperiments; ++e) {
    Samples samples(31);
    for (double& sample : samples) sample = random.unit();
    const auto interval = *bootstrap_median_interval(samples, random, 0.95, 200);
    if (interval.low <= 0.5 && 0.5 <= interval.high) ++covered;
  }
  EXPECT_GT(covered, kExperiments * 88 / 100);
  EXPECT_LT(covered, kExperiments);
}

TEST(Statistics, SummaryIsTheSameForTheSameSamples) {
  const Samples samples{5, 1, 4, 2, 3};
  const auto a = *summarize(samples), b = *summarize(samples);
  EXPECT_EQ(a.runs, 5u);
  EXPECT_EQ(a.median, 3);
  EXPECT_EQ(a.min, 1);
  EXPECT_EQ(a.max, 5);
  EXPECT_EQ(a.interval95.low, b.interval95.low);
}

}  // namespace
}  // namespace headrace
