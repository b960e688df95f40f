// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "benchmarks/histogram/histogram.h"

namespace headrace {
namespace {

// The data of the guide's program with `threads` threads; OpenMP gives the first parts one more.
std::vector<double> guides_data(std::size_t size, std::size_t threads) {
  std::vector<double> data;
  for (std::size_t i = 0; i < threads; ++i) {
    drand48_data state{};
    srand48_r(static_cast<long>(i), &state);
    for (std::size_t n = size / threads + (i < size % threads ? 1 : 0); n > 0; --n) {
      drand48_r(&state, &data.emplace_back());
    }
  }
  return data;
}

TEST(HistogramWorkloadTest, DataAreThoseOfTheGuideForTheSameThreads) {
  for (const std::size_t threads : {1, 2, 3, 7}) {
    for (const std::size_t size : {0, 1, 5, 1000, 1001}) {
      std::vector<double> data(size, -1);
      ASSERT_TRUE(histogram_fill(data, CpuSet(threads, 0)).has_value());
      EXPECT_EQ(data, guides_data(size, threads)) << size << " by " << threads;
    }
  }
}

TEST(HistogramWorkloadTest, CountsAsTheNaiveLoop) {
  const CpuSet cpus = {0, 0, 0};
  std::vector<double> data(100'003);
  ASSERT_TRUE(histogram_fill(data, cpus).has_value());
  data.front() = 0;
  data.back() = 0x1.fffffffffffffp-1;  // the largest possible drand48 value: it wraps to bin 0
  std::vector<std::uint64_t> bins(cpus.size() * kHistogramBins, 77);
  const auto time = histogram_count(data, bins, cpus);
  ASSERT_TRUE(time.has_value()) << time.error().message;
  std::vector<std::uint64_t> naive(kHistogramBins);
  for (const double x : data) {
    ++naive[static_cast<std::size_t>(x / (1.0 / 1048577.0)) % kHistogramBins];
  }
  EXPECT_GE(naive[0], 2u);
  for (std::size_t bin = 0; bin < kHistogramBins; ++bin) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < cpus.size(); ++i) sum += bins[i * kHistogramBins + bin];
    ASSERT_EQ(sum, naive[bin]) << bin;
  }
  EXPECT_EQ(std::accumulate(bins.begin(), bins.end(), std::uint64_t{0}), data.size());
}

TEST(HistogramWorkloadTest, ComplainsOfNoCpuAndOfOtherBins) {
  std::vector<double> data(10);
  std::vector<std::uint64_t> bins(kHistogramBins);
  EXPECT_EQ(histogram_fill(data, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(histogram_count(data, bins, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(histogram_count(data, bins, {0, 0}).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
