// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/ycsb/keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace headrace::kv_bench {
namespace {

double summed(std::uint64_t n, double exponent) {
  double sum = 0;
  for (std::uint64_t i = n; i > 0; --i) sum += std::pow(static_cast<double>(i), -exponent);
  return sum;
}

TEST(Keys, ZetaIsTheSumItself) {
  for (const double exponent : {0.5, 0.9, 0.99, 0.999}) {
    for (const std::uint64_t n : {1U, 2U, 999U, 1000U, 1001U, 5000U, 200'000U}) {
      const double exact = summed(n, exponent);
      EXPECT_NEAR(zeta(n, exponent) / exact, 1, 1e-11) << n << " " << exponent;
    }
  }
}

TEST(Keys, ZetaIsThatOfYcsb) {
  // YCSB added ten billion terms in order; its rounding shows in the last digits.
  EXPECT_NEAR(zeta(kYcsbItems, kYcsbExponent), kYcsbZeta, 1e-9);
}

TEST(Keys, HashIsFnv1a) {
  EXPECT_EQ(fnv1a(0), 0xA8C7F832281A39C5U);  // eight zero bytes: the basis times the prime^8
  std::uint64_t prime = 0xCBF29CE484222325;  // FNV's basis; its prime is 2^40 + 2^8 + 0xb3
  for (int i = 0; i < 8; ++i) prime *= (std::uint64_t{1} << 40) + (1 << 8) + 0xB3;
  EXPECT_EQ(fnv1a(0), prime);
  // The published test value of byte 'a', followed by seven zero bytes.
  std::uint64_t a = 0xAF63DC4C8601EC8C;  // FNV-1a of "a"
  for (int i = 0; i < 7; ++i) a *= 0x100000001B3;
  EXPECT_EQ(fnv1a('a'), a);
}

// Pearson's statistic of draws in classes with these probabilities, as its distance from the mean
// in standard deviations.
double excess(const std::vector<double>& found, const std::vector<double>& probability,
              double draws) {
  double statistic = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double expected = draws * probability[i];
    statistic += (found[i] - expected) * (found[i] - expected) / expected;
  }
  const double freedom = static_cast<double>(found.size()) - 1;
  return (statistic - freedom) / std::sqrt(2 * freedom);
}

TEST(Keys, RanksAreDrawnAsTheMethodSays) {
  constexpr std::uint64_t kRanks = 1000;
  constexpr int kDraws = 1'000'000;
  const ZipfRanks ranks(kRanks);
  std::vector<double> probability(kRanks);
  for (std::uint64_t i = 0; i < kRanks; ++i) probability[i] = ranks.below(i + 1) - ranks.below(i);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    Random random(seed);
    std::vector<double> found(kRanks);
    for (int i = 0; i < kDraws; ++i) found.at(ranks.draw(random)) += 1;
    EXPECT_LT(std::abs(excess(found, probability, kDraws)), 4) << seed;
  }
}

TEST(Keys, TheMethodIsNearZipfsLaw) {
  for (const std::uint64_t n : {1000U, 1'000'000U}) {
    const ZipfRanks ranks(n);
    const double all = zeta(n, kYcsbExponent);
    EXPECT_NEAR(ranks.below(1), 1 / all, 1e-12);
    EXPECT_NEAR(ranks.below(2), zeta(2, kYcsbExponent) / all, 1e-12);
    double farthest = 0;
    for (std::uint64_t rank = 1; rank < n; rank += 1 + rank / 50) {
      const double exact = zeta(rank, kYcsbExponent) / all;
      farthest = std::max(farthest, std::abs(ranks.below(rank) - exact));
    }
    EXPECT_LT(farthest, 0.02) << n;  // of all draws, at any rank
  }
}

TEST(Keys, RanksAndTheirPartsAreInverse) {
  const ZipfRanks ranks(1'000'000'000);
  for (std::uint64_t rank = 3; rank < ranks.count(); rank *= 3) {
    const double unit = ranks.below(rank);
    EXPECT_LE(ranks.at(unit - 1e-9), rank);
    EXPECT_GE(ranks.at(unit + 1e-9) + 1, rank);
  }
  EXPECT_EQ(ranks.at(0), 0U);
  EXPECT_LT(ranks.at(1 - 0x1p-53), ranks.count());
}

TEST(Keys, GrownGenerator_EqualsOneOfThatSize) {
  ZipfRanks grown(1000);
  for (int i = 0; i < 9000; ++i) grown.grow();
  const ZipfRanks made(10'000);
  for (double unit = 0; unit < 1; unit += 0.001) EXPECT_EQ(grown.at(unit), made.at(unit));
}

TEST(Keys, ScramblingScattersButKeepsTheFirstFirst) {
  const ScrambledKeys keys(1000);
  Random random(1);
  std::vector<int> found(1000);
  constexpr int kDraws = 200'000;
  for (int i = 0; i < kDraws; ++i) found.at(keys.draw(random)) += 1;
  EXPECT_NEAR(found[keys.record_of(0)], kDraws / kYcsbZeta, kDraws / 50);
  EXPECT_NE(keys.record_of(0) + 1, keys.record_of(1));
  EXPECT_EQ(keys.record_of(0), (0 - fnv1a(0)) % 1000);  // negative if signed
}

TEST(Keys, TheLatestIsReadMost) {
  LatestKeys keys(1000);
  EXPECT_EQ(keys.insert(), 1000U);
  Random random(1);
  std::vector<int> found(1001);
  for (int i = 0; i < 100'000; ++i) found.at(keys.draw(random)) += 1;
  EXPECT_GT(found[1000], found[999]);
  EXPECT_GT(found[999], found[900]);
}

}  // namespace
}  // namespace headrace::kv_bench
