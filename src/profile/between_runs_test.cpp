// SPDX-License-Identifier: Apache-2.0
#include "profile/between_runs.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "headrace/random.h"

namespace headrace::between_runs {
namespace {

TEST(BetweenRuns, Pooled_IsTheVarianceWithinSides) {
  const Variance found =
      pooled(std::array{std::vector<double>{1, 3}, std::vector<double>{7, 8, 9}});
  EXPECT_DOUBLE_EQ(found.value, 4.0 / 3);
  EXPECT_EQ(found.freedom, 3);
  EXPECT_EQ(pooled(std::array{std::vector<double>{1}, std::vector<double>{7}}).freedom, 0);
}

// Quantiles from tables. Far out, where many rows are judged, the approximation is too large.
TEST(BetweenRuns, StudentsQuantiles) {
  struct Known {
    double p, freedom, t;
  };
  EXPECT_NEAR(two_sided_t(0.05, 1), 12.706, 0.001);
  EXPECT_NEAR(two_sided_t(0.05, 2), 4.303, 0.001);
  for (const auto& [p, freedom, t] : {Known{0.05, 4, 2.776}, Known{0.01, 8, 3.355},
                                      Known{0.001, 10, 4.587}, Known{0.0001, 20, 4.837}}) {
    EXPECT_GE(two_sided_t(p, freedom), p < 0.02 ? t - 0.002 : t * 0.99) << p << " " << freedom;
    EXPECT_LE(two_sided_t(p, freedom), t * 1.03) << p << " " << freedom;
  }
  EXPECT_NEAR(two_sided_z(0.05), 1.960, 0.001);
}

// Variances of normal values with a sigma of 1; every third row has another sigma.
std::vector<Variance> drawn(int freedom, std::size_t rows, double sigma_of_every_third) {
  Random random(1);
  std::vector<Variance> own;
  for (std::size_t i = 0; i < rows; ++i) {
    double squares = 0;
    for (int k = 0; k < freedom; ++k) {
      double sum = -6;
      for (int n = 0; n < 12; ++n) sum += random.unit();
      squares += sum * sum;
    }
    const double sigma = i % 3 == 0 ? sigma_of_every_third : 1;
    own.push_back({.value = sigma * sigma * squares / freedom, .freedom = double(freedom)});
  }
  return own;
}

TEST(BetweenRuns, RowsOfEqualVariance_GainFreedom) {
  for (const Variance& each : moderated(drawn(4, 300, 1))) {
    EXPECT_NEAR(each.value, 1, 0.5);
    EXPECT_EQ(each.freedom, 8) << "as if each row had been measured twice as often";
  }
}

TEST(BetweenRuns, RowsOfUnequalVariance_KeepTheirOwn) {
  const std::vector<Variance> own = drawn(4, 300, 10);
  const std::vector<Variance> found = moderated(own);
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_LT(found[i].freedom, 8);
    EXPECT_GT(found[i].value, own[i].value / 2);
    EXPECT_TRUE(own[i].value > 0.3 || found[i].value > own[i].value) << "no row is that quiet";
  }
}

TEST(BetweenRuns, NoRows_GiveNoFreedom) {
  EXPECT_TRUE(moderated({}).empty());
  EXPECT_EQ(moderated(std::array{Variance{}})[0].freedom, 0);
  const auto found = moderated(std::array{Variance{0, 4}, Variance{}});
  EXPECT_GT(found[0].value, 0) << "that runs agree exactly is chance";
  EXPECT_GT(found[1].freedom, 0) << "a row of one run has what is usual";
}

}  // namespace
}  // namespace headrace::between_runs
