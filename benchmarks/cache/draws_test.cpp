// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/draws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace headrace::cache_bench {
namespace {

std::vector<double> counts(const Draws& draws, std::uint64_t n) {
  std::vector<double> found(n);
  for (const std::uint32_t draw : draws) found.at(draw) += 1;
  return found;
}

TEST(Draws, UniformIsNearlyEven) {
  Random random(1);
  const std::vector<double> found = counts(uniform(random, 10, 100'000), 10);
  EXPECT_GT(std::ranges::min(found), 9'500);
  EXPECT_LT(std::ranges::max(found), 10'500);
}

TEST(Draws, ZipfFallsAsItsLawSays) {
  Random random(1);
  std::vector<double> found = counts(zipf(random, 5, 1000, 0.99, 1'000'000), 1000);
  std::ranges::sort(found, std::greater{});
  for (const std::size_t rank : {2U, 10U, 100U}) {
    const double expected = std::pow(static_cast<double>(rank), 0.99);
    EXPECT_NEAR(found[0] / found[rank - 1] / expected, 1, 0.1) << rank;
  }
}

TEST(Draws, TheSameSeedRanksAlike) {
  Random first(1);
  Random second(2);
  const std::vector<double> a = counts(zipf(first, 5, 1000, 0.99, 10'000), 1000);
  const std::vector<double> b = counts(zipf(second, 5, 1000, 0.99, 10'000), 1000);
  EXPECT_EQ(std::ranges::max_element(a) - a.begin(), std::ranges::max_element(b) - b.begin());
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace headrace::cache_bench
