// SPDX-License-Identifier: Apache-2.0
#include "headrace/histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

namespace headrace {
namespace {

RC_GTEST_PROP(Histogram, BucketsPartitionTheRange, (std::uint64_t value)) {
  const auto bucket = Histogram::bucket_of(value);
  RC_ASSERT(bucket < std::size_t{Histogram::kBuckets});
  RC_ASSERT(value <= Histogram::upper_edge(bucket));
  if (bucket > 0) RC_ASSERT(value > Histogram::upper_edge(bucket - 1));
}

RC_GTEST_PROP(Histogram, QuantilesAreWithinASixteenth, (std::vector<std::uint32_t> values)) {
  RC_PRE(!values.empty());
  Histogram histogram;
  for (auto value : values) histogram.record(value);
  std::ranges::sort(values);
  for (double q : {0.0, 0.5, 0.9, 0.99, 1.0}) {
    const double rank = std::ceil(q * static_cast<double>(values.size()));
    const double exact = values[std::max<std::size_t>(static_cast<std::size_t>(rank), 1) - 1];
    const auto read = static_cast<double>(*histogram.quantile(q));
    RC_ASSERT(read >= exact);
    RC_ASSERT(read <= exact * (1 + 1.0 / 16));
  }
}

TEST(Histogram, LastBucketEndsTheRange) {
  EXPECT_EQ(Histogram::upper_edge(Histogram::kBuckets - 1), ~std::uint64_t{0});
}

TEST(Histogram, EmptyHasNoQuantile) {
  Histogram histogram;
  EXPECT_FALSE(histogram.quantile(0.5));
  histogram.record(3);
  EXPECT_EQ(histogram.quantile(0.5), 3u);
  histogram.clear();
  EXPECT_EQ(histogram.count(), 0u);
}

TEST(Histogram, AddsAndCopies) {
  Histogram a, b;
  a.record(1);
  b.record(100);
  a.add(b);
  const Histogram copy = a;
  EXPECT_EQ(copy.count(), 2u);
  a = static_cast<const Histogram&>(a);  // clang warns about a plain a = a
  EXPECT_EQ(a.count(), 2u);
}

TEST(Histogram, LosesNothingWhenManyRecord) {
  Histogram histogram;
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 10'000; ++i) histogram.record(i * (t + 1));
    });
  }
  threads.clear();
  EXPECT_EQ(histogram.count(), 40'000u);
}

}  // namespace
}  // namespace headrace
