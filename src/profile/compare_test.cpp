// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "headrace/profile.h"
#include "headrace/random.h"

namespace headrace {
namespace {

// Rows of one experiment near 100, each with `samples` samples with relative noise `noise`.
Profile noisy_profile(std::uint64_t seed, double noise, double factor = 1, std::size_t rows = 40,
                      std::size_t samples = 5) {
  Random random(seed);
  // A sum of uniform numbers is nearly normal.
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
    // Without intervals, which are not compared and take long to compute.
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
  // 1 % of comparisons is promised; three standard deviations above it would be 7.
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
  // Too noisy for each single row, but not for all rows together.
  const Comparison all = compare(noisy_profile(1, 0.05), noisy_profile(2, 0.05, 0.9));
  ASSERT_EQ(all.shifts.size(), 1u);
  EXPECT_TRUE(all.shifts[0].changed);
  EXPECT_NEAR(all.shifts[0].ratio, 0.9, 0.03);
  EXPECT_TRUE(all.changed());
}

// Samples within a run agree, and the runs differ by 3 %: most rows show that difference.
TEST(CompareTest, UsualDifferenceOfTwoRuns_IsNoChange) {
  const auto run = [](std::uint64_t seed, std::size_t rows) {
    Profile profile = noisy_profile(seed, 0.03, 1, rows, 1);
    for (Row& row : profile.rows) row.samples.resize(3, row.samples[0]);
    return profile;
  };
  int alarms = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    alarms += compare(run(2 * seed, 40), run(2 * seed + 1, 40)).changed();
  }
  EXPECT_LE(alarms, 3);
  // Three rows of an experiment are too few for an estimate; all rows are used.
  Profile before = run(1, 40), after = run(2, 40);
  for (std::size_t i : {0u, 1u, 2u}) before.rows[i].experiment = after.rows[i].experiment = "few";
  after.rows[0].samples[0] *= 1.07;
  after.rows[0].value->median = before.rows[0].value->median * 1.07;
  const Comparison found = compare(before, after);
  EXPECT_EQ(found.rows[0].outcome, Difference::Outcome::inconclusive);
  EXPECT_GT(found.rows[0].threshold, 0.1);
}

// A change that differs between rows looks like the noise of a whole run, so "nothing changed" must
// not be reported.
TEST(CompareTest, AMixedChangeIsInconclusiveAndNotTheSame) {
  const std::vector<std::vector<double>> mixes = {
      {1.2, 0.8}, {1.2, 1 / 1.2}, {0.6, 0.85, 1}, {1.4, 1 / 1.4}, {2, 0.5}};
  for (const std::vector<double>& factors : mixes) {
    const Profile before = noisy_profile(1, 0.005);
    Profile after = noisy_profile(2, 0.005);
    std::size_t planted = 0;
    for (std::size_t i = 0; i < after.rows.size(); ++i) {
      const double factor = factors[i % factors.size()];
      planted += factor != 1 ? 1 : 0;
      for (double& sample : after.rows[i].samples) sample *= factor;
      after.rows[i].value = Summary{.median = *median(after.rows[i].samples)};
    }
    const Comparison found = compare(before, after);
    const auto told = std::ranges::count_if(found.rows, [](const Difference& row) {
      return row.outcome == Difference::Outcome::inconclusive ||
             row.outcome == Difference::Outcome::changed;
    });
    EXPECT_EQ(static_cast<std::size_t>(told), planted) << factors[0];
    EXPECT_NE(found.changed(), found.inconclusive()) << factors[0];
  }
  EXPECT_EQ(to_string(Difference::Outcome::inconclusive), "inconclusive");
}

// Half of an experiment's rows are cache rows, which slower memory does not change.
TEST(CompareTest, CachesAreJudgedApartFromMemory) {
  const auto profile = [](std::uint64_t seed, double memory) {
    Profile made = noisy_profile(seed, 0.002);
    made.machine.caches = {{.level = 3, .size = 32_MiB, .cpus = {0}}};
    for (std::size_t i = 0; i < made.rows.size(); ++i) {
      Row& row = made.rows[i];
      row.experiment = "latency";
      row.parameters.push_back({"bytes", (i % 2 == 0 ? 1_MiB : 1_GiB).value});
      if (i % 2 == 0) continue;
      for (double& sample : row.samples) sample *= memory;
      row.value = Summary{.median = *median(row.samples)};
    }
    return made;
  };
  const Comparison found = compare(profile(1, 1), profile(2, 0.93));
  for (const Difference& row : found.rows) {
    EXPECT_EQ(row.outcome, row.in_caches ? Difference::Outcome::same : Difference::Outcome::changed)
        << row.key;
  }
  ASSERT_EQ(found.shifts.size(), 2U);
  EXPECT_FALSE(found.shifts[0].in_caches);
  EXPECT_NEAR(found.shifts[0].ratio, 0.93, 0.01);
  EXPECT_TRUE(found.shifts[1].in_caches);
  EXPECT_NEAR(found.shifts[1].ratio, 1, 0.01);
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

TEST(CompareTest, RowsThatAreNotJudged_SayWhy) {
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
  EXPECT_EQ(compare(after, before).rows[2].outcome, Difference::Outcome::noisy);
  EXPECT_FALSE(found.changed());
  EXPECT_FALSE(compare(Profile{}, Profile{}).changed());
}

// Typical runs of a machine: rows of two experiments that move together from run to run, each with
// its own noise, larger in some rows. One value in 20 is off by a third; it has a flag if `flags`.
class Runs {
 public:
  explicit Runs(std::uint64_t seed, bool flags = false) : random_(seed), flags_(flags) {}

  // `factor`: for the rows of "stream", or for only one of them.
  std::vector<Profile> runs(std::size_t count, double factor = 1, bool in_one_row = false) {
    std::vector<Profile> made(count);
    for (Profile& profile : made) {
      for (const std::string experiment : {"copy", "stream"}) {
        const double level = 0.02 * normal();
        for (std::size_t i = 0; i < 20; ++i) {
          const double sigma = i % 4 == 0 ? 0.05 : 0.01;
          double value = 100 * std::exp(level + sigma * normal());
          const bool off = random_.chance(0.05);
          if (off) value *= 1.3;
          if (experiment == "stream" && (!in_one_row || i == kRow)) value *= factor;
          profile.rows.push_back({.experiment = experiment,
                                  .parameters = {{"point", i}},
                                  .unit = "B/s",
                                  .value = Summary{.median = value},
                                  .samples = {value}});
          if (off && flags_) profile.rows.back().add_flag("noisy");
        }
      }
    }
    return made;
  }

  static constexpr std::size_t kRow = 7;

 private:
  double normal() {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += random_.unit();
    return sum - 6;
  }

  Random random_;
  const bool flags_;
};

TEST(CompareGroups, NoiseBetweenRunsIsNoChange) {
  for (const std::size_t count : {3u, 5u}) {
    int alarms = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      Runs runs(seed);
      alarms += compare(runs.runs(count), runs.runs(count)).changed();
    }
    EXPECT_LE(alarms, 5) << count;
  }
}

TEST(CompareGroups, ATenthSlowerIsFoundInAnExperimentAndInOneRow) {
  int in_all = 0, in_one = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Runs runs(seed);
    in_all += compare(runs.runs(5), runs.runs(5, 0.9)).shifts[1].changed;
    Runs flagged(seed, true);
    const Comparison one = compare(flagged.runs(8), flagged.runs(8, 0.9, true));
    in_one += one.rows[20 + Runs::kRow].outcome == Difference::Outcome::changed;
  }
  EXPECT_GE(in_all, 90);
  EXPECT_GE(in_one, 90);
}

// With one run per side, the error of a noisy row is unknown; with several runs its spread shows
// it.
TEST(CompareGroups, JudgesNoisyRowsByTheirSpread) {
  Runs runs(1);
  std::vector<Profile> before = runs.runs(4), after = runs.runs(4, 0.5);
  for (Profile& profile : before) profile.rows[20].flags = {"noisy"};
  for (Profile& profile : after) profile.rows[20].flags = {"noisy"};
  const Comparison found = compare(before, after);
  EXPECT_EQ(found.rows[20].outcome, Difference::Outcome::changed);
  EXPECT_EQ(found.judged(), 40u);
  const Comparison once = compare(before, std::span(after).first(1));
  EXPECT_EQ(once.rows[20].outcome, Difference::Outcome::noisy);
  EXPECT_EQ(once.rows[21].outcome, Difference::Outcome::changed);
  EXPECT_EQ(once.judged(), 39u);
  EXPECT_EQ(once.expected(), 40u);
}

// Base pages cost a table walk where huge pages hit the TLB: not a change of the machine.
TEST(CompareTest, RowsOnOtherPagesAreNotJudged) {
  Profile before = one("x", {100, 100, 100});
  Profile after = one("x", {50, 50, 50});
  EXPECT_EQ(compare(before, after).rows[0].outcome, Difference::Outcome::changed);
  after.rows[0].flags = {"not_huge"};
  for (const Comparison& found : {compare(before, after), compare(after, before)}) {
    EXPECT_EQ(found.rows[0].outcome, Difference::Outcome::other_pages);
    EXPECT_EQ(found.judged(), 0u);
    EXPECT_FALSE(found.changed());
  }
  before.rows[0].flags = {"not_huge"};
  EXPECT_EQ(compare(before, after).rows[0].outcome, Difference::Outcome::changed);
  const std::vector<Profile> huge(3, one("x", {100, 100, 100})), mixed = {huge[0], after, after};
  EXPECT_EQ(compare(huge, mixed).rows[0].outcome, Difference::Outcome::other_pages);
  EXPECT_EQ(to_string(Difference::Outcome::other_pages), "other_pages");
}

TEST(CompareGroups, LeavesNoisyRunsOutWhereThreeQuietOnesRemain) {
  const auto profile = [](double value, bool noisy) {
    Profile made = one("x", {value});
    if (noisy) made.rows[0].flags = {"noisy"};
    return made;
  };
  const std::vector<Profile> quiet = {profile(100, false), profile(101, false), profile(99, false),
                                      profile(300, true)};
  const Comparison found = compare(quiet, quiet);
  EXPECT_EQ(found.rows[0].old_runs, 3u);
  EXPECT_NEAR(*found.rows[0].old_value, 100, 0.01);
  const Comparison few = compare(std::span(quiet).last(3), quiet);
  EXPECT_EQ(few.rows[0].old_runs, 3u) << "two quiet ones are too few without it";
}

// A run that lacks a row, and rows with only one value per side.
TEST(CompareGroups, RowsThatSomeRunsLack) {
  Runs runs(1);
  std::vector<Profile> before = runs.runs(2), after = runs.runs(2);
  before[0].rows.erase(before[0].rows.begin());
  after[0].rows.erase(after[0].rows.begin());
  before[1].rows.push_back(one("alone", {1}).rows[0]);
  after[1].rows.push_back(one("alone", {2}).rows[0]);
  const Comparison found = compare(before, after);
  const auto row_of = [&](const std::string& key) {
    return *std::ranges::find(found.rows, key, &Difference::key);
  };
  EXPECT_EQ(row_of("copy point=0").old_runs, 1u);
  EXPECT_EQ(row_of("copy point=0").outcome, Difference::Outcome::same) << "by what is usual";
  EXPECT_EQ(row_of("alone").outcome, Difference::Outcome::too_few);
  EXPECT_FALSE(found.changed());
  EXPECT_EQ(found.judged(), 40u);
  EXPECT_EQ(found.expected(), 41u);
}

}  // namespace
}  // namespace headrace
