// SPDX-License-Identifier: Apache-2.0
#include "headrace/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "headrace/random.h"

namespace headrace {
namespace {

using Samples = std::vector<double>;

TEST(Statistics, NoSamples_GiveNothing) {
  EXPECT_FALSE(median(Samples{}));
  EXPECT_FALSE(median_absolute_deviation(Samples{}));
  EXPECT_FALSE(quantile(Samples{}, 0.5));
  EXPECT_FALSE(median_interval(Samples{}));
  EXPECT_FALSE(launch_interval(Samples{}, {}));
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

// The least and largest number of `n` samples below the median for which the interval contains it.
// Each sample is identified by its rank among 1, ..., n.
std::pair<std::size_t, std::size_t> below_in_interval(std::size_t n) {
  Samples samples(n);
  std::iota(samples.begin(), samples.end(), 1);
  const Interval interval = *median_interval(samples);
  return {static_cast<std::size_t>(interval.low), static_cast<std::size_t>(interval.high) - 1};
}

// Probability of each number of heads among n coin throws, for walks that have not left before.
using Walk = std::map<std::size_t, double>;

Walk thrown_once_more(const Walk& walk) {
  Walk next;
  for (const auto& [heads, chance] : walk) {
    next[heads] += chance / 2;
    next[heads + 1] += chance / 2;
  }
  return next;
}

// The caller may look at the interval of 6, 7, ... 24 samples and stop at any time. Exact for all
// distributions, by all ways in which samples can fall on the two sides of the median.
TEST(MedianInterval, StoppingAtAnyCount_KeepsTheCoverage) {
  Walk walk{{0, 1.0}};
  double missed = 0;
  for (std::size_t n = 1; n <= 24; ++n) {
    walk = thrown_once_more(walk);
    if (n < kLeastForInterval) continue;
    const auto [least, most] = below_in_interval(n);
    for (auto at = walk.begin(); at != walk.end();) {
      const bool held = least <= at->first && at->first <= most;
      if (!held) missed += at->second;
      at = held ? std::next(at) : walk.erase(at);
    }
  }
  EXPECT_LE(missed, 1 - kCoverage);
  EXPECT_GT(missed, 0.045) << "wider than it need be";
}

TEST(MedianInterval, HoldsTheMedianOfAnyFixedNumber) {
  for (std::size_t n = kLeastForInterval; n <= 1200; n += n < 60 ? 1 : 57) {
    const auto [least, most] = below_in_interval(n);
    double held = 0;
    const auto count = static_cast<double>(n);
    for (std::size_t k = least; k <= most; ++k) {
      const auto heads = static_cast<double>(k);
      held += std::exp(std::lgamma(count + 1) - std::lgamma(heads + 1) -
                       std::lgamma(count - heads + 1) - count * std::log(2));
    }
    EXPECT_GE(held, kCoverage) << n;
    EXPECT_TRUE(n <= 24 || held <= 0.99) << n << ": wider than it need be";
  }
  EXPECT_TRUE(median_interval(Samples(1'000'000, 1.0)));
}

TEST(MedianInterval, TakesSixSamples) {
  EXPECT_FALSE(median_interval(Samples{1, 2, 3, 4, 5}));
  const auto found = *median_interval(Samples{3, 1, 2, 6, 5, 4});
  EXPECT_EQ(found.low, 1);
  EXPECT_EQ(found.high, 6);
}

TEST(LaunchInterval, TakesSixLaunchesAndSeesThatTheyDiffer) {
  const std::vector<std::size_t> five(5, 6), six(6, 6);
  Samples alike(36), apart(36);
  for (std::size_t i = 0; i < 36; ++i) {
    alike[i] = double(i % 6);       // equal in each launch
    apart[i] = double(i / 6) * 10;  // equal within a launch
  }
  EXPECT_FALSE(launch_interval(Samples(30, 1.0), five));
  const auto near = *launch_interval(alike, six), far = *launch_interval(apart, six);
  EXPECT_LE(near.high - near.low, 4);
  EXPECT_EQ(far.low, 0) << "the bootstrap draws one launch six times now and then";
  EXPECT_EQ(far.high, 50);
  const auto as_one = *median_interval(apart);
  EXPECT_LT(as_one.high - as_one.low, far.high - far.low);
}

TEST(Summary, SaysWhatItsIntervalIs) {
  const Summary three = *summarize(Samples{3, 1, 2});
  EXPECT_EQ(three.interval.low, 1);
  EXPECT_EQ(three.interval.high, 3);
  EXPECT_FALSE(three.coverage);
  EXPECT_EQ(interval_words(three), "range of 3");
  EXPECT_EQ(interval_words(*summarize(Samples{1, 2, 3, 4, 5})), "range of 5");
  const Summary seven = *summarize(Samples{1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(seven.coverage, 0.95);
  EXPECT_EQ(interval_words(seven), "95 %");
  const std::vector<std::size_t> two{3, 4}, one{7};
  const Summary launches = *summarize(Samples{1, 2, 3, 11, 12, 13, 14}, two);
  EXPECT_EQ(launches.interval.low, 2) << "the launches' medians";
  EXPECT_EQ(launches.interval.high, 12.5);
  EXPECT_EQ(launches.max, 14);
  EXPECT_EQ(interval_words(launches), "range of 2 launches");
  EXPECT_EQ(interval_words(*summarize(Samples(7, 1.0), one)), "95 %");
  const std::vector<std::size_t> six(6, 1);
  EXPECT_EQ(interval_words(*summarize(Samples(6, 1.0), six)), "95 % of 6 launches");
  EXPECT_EQ(interval_words({}), "unknown");
}

TEST(Statistics, SummaryIsTheSameForTheSameSamples) {
  const Samples samples{5, 1, 4, 2, 3};
  const auto a = *summarize(samples), b = *summarize(samples);
  EXPECT_EQ(a.runs, 5u);
  EXPECT_EQ(a.median, 3);
  EXPECT_EQ(a.min, 1);
  EXPECT_EQ(a.max, 5);
  EXPECT_EQ(a.interval.low, b.interval.low);
}

}  // namespace
}  // namespace headrace
