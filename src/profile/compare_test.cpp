#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>

#include "headrace/profile.h"
#include "headrace/random.h"

namespace headrace {
namespace {

// Rows of one experiment around 100, each with `samples` samples of relative noise `noise`.
Profile noisy_profile(std::uint64_t seed, double noise, double factor = 1, std::size_t rows = 40,
                      std::size_t samples = 5) {
  Random random(seed);
  // A sum of uniform numbers is near enough to a normal one.
  const auto normal = [&] {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += random.unit();
    return sum - 6;
  };
  Profile profile;
  for (std::size_t i = 0; i < rows; ++i) {
    Row row{.experiment = "bandwidth", .parameters = {{"point", i}}, .unit = "B/s"};
    for (std::size_t k = 0; k < samples; ++k) {
      row.samples.push_back(100 * factor * std::exp(noise * normal()));
    }
    // Without the intervals, which are not compared and take long.
    row.value = Summary{.median = *median(row.samples)};
    profile.rows.push_back(std::move(row));
  }
  return profile;
}

Profile one(std::string experiment, std::vector<double> samples) {
  Profile profile;
  Row row{.experiment = std::move(experiment), .samples = std::move(samples)};
  row.value = summarize(row.samples);
  profile.rows.push_back(std::move(row));
  return profile;
}

TEST(CompareTest, NoiseAloneIsNoChange) {
  int alarms = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    alarms += compare(noisy_profile(2 * seed, 0.03), noisy_profile(2 * seed + 1, 0.03)).changed();
  }
  // 1 % of comparisons is stated; three samples of sigma above it would be 7.
  EXPECT_LE(alarms, 7);
}

TEST(CompareTest, ATenthSlowerIsFoundInOneRowAndInAll) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Profile before = noisy_profile(seed, 0.01);
    Profile after = noisy_profile(seed + 100, 0.01);
    for (double& sample : after.rows[7].samples) sample *= 0.9;
    after.rows[7].value = summarize(after.rows[7].samples);
    const Comparison found = compare(before, after);
    EXPECT_EQ(found.rows[7].outcome, Difference::Outcome::changed) << seed;
    EXPECT_NEAR(*found.rows[7].ratio, 0.9, 0.05);
    EXPECT_EQ(std::ranges::count(found.rows, Difference::Outcome::changed, &Difference::outcome),
              1);
  }
  // Too noisy for any single row, but not for all of them together.
  const Comparison all = compare(noisy_profile(1, 0.05), noisy_profile(2, 0.05, 0.9));
  ASSERT_EQ(all.shifts.size(), 1u);
  EXPECT_TRUE(all.shifts[0].changed);
  EXPECT_NEAR(all.shifts[0].ratio, 0.9, 0.03);
  EXPECT_TRUE(all.changed());
}

TEST(CompareTest, TwiceAsFastIsAsFarAsHalfAsFast) {
  const auto there = compare(one("x", {100, 101, 99}), one("x", {200, 202, 198}));
  const auto back = compare(one("x", {200, 202, 198}), one("x", {100, 101, 99}));
  EXPECT_EQ(there.rows[0].outcome, Difference::Outcome::changed);
  EXPECT_EQ(back.rows[0].outcome, Difference::Outcome::changed);
  EXPECT_DOUBLE_EQ(*there.rows[0].ratio * *back.rows[0].ratio, 1);
  EXPECT_DOUBLE_EQ(there.rows[0].threshold, back.rows[0].threshold);
}

TEST(CompareTest, SmallDifferencesDoNotCountHoweverCertain) {
  const auto exact = [](double value) { return one("x", std::vector<double>(9, value)); };
  EXPECT_FALSE(compare(exact(100), exact(104)).changed());
  EXPECT_TRUE(compare(exact(100), exact(106)).changed());
  EXPECT_FALSE(compare(exact(100), exact(106), {.least = 0.1}).changed());
}

TEST(CompareTest, RowsInOneAloneNoisyOnesAndThoseWithoutAValueAreSaidSo) {
  Profile before = one("a", {1, 1, 1});
  Profile after = one("b", {1, 1, 1});
  before.rows.push_back({.experiment = "c", .reason = "absent"});
  after.rows.push_back({.experiment = "c", .reason = "absent"});
  before.rows.push_back(one("d", {1, 1, 1}).rows[0]);
  after.rows.push_back(one("d", {2, 2, 2}).rows[0]);
  after.rows.back().flags = {"noisy"};
  const Comparison found = compare(before, after);
  ASSERT_EQ(found.rows.size(), 4u);
  EXPECT_EQ(found.rows[0].outcome, Difference::Outcome::only_old);
  EXPECT_EQ(found.rows[1].outcome, Difference::Outcome::unmeasured);
  EXPECT_EQ(found.rows[2].outcome, Difference::Outcome::noisy);
  EXPECT_EQ(found.rows[3].outcome, Difference::Outcome::only_new);
  EXPECT_FALSE(found.changed());
  EXPECT_FALSE(compare({}, {}).changed());
}

}  // namespace
}  // namespace headrace
