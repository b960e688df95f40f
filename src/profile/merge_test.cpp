// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "headrace/profile.h"

namespace headrace {
namespace {

Row measured(std::string name, std::vector<double> samples, std::vector<std::string> flags = {}) {
  Row row{.experiment = std::move(name), .samples = std::move(samples), .flags = std::move(flags)};
  row.value = summarize(row.samples);
  row.details["bus"] = row.value->median * 2;
  row.words["kernel"] = row.value->median < 11 ? "one" : "other";
  return row;
}

Profile launch(std::vector<Row> rows) {
  Profile profile;
  profile.machine.name = "here";
  profile.rows = std::move(rows);
  profile.conditions["date"] = "now";
  return profile;
}

TEST(Merge, PutsTheSamplesOfAllLaunchesTogether) {
  const std::vector launches = {
      launch({measured("a", {10, 11}, {"few"})}),
      launch({measured("a", {12, 13}, {"few"}), measured("b", {1, 2, 3})}),
      launch({Row{.experiment = "a", .reason = "stopped"}})};
  const auto all = merge(launches);
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->rows.size(), 2u);
  EXPECT_EQ(all->rows[0].samples, (std::vector<double>{10, 11, 12, 13}));
  EXPECT_EQ(all->rows[0].launches, (std::vector<std::size_t>{2, 2}));
  EXPECT_EQ(all->rows[0].value->median, 11.5);
  EXPECT_EQ(interval_words(*all->rows[0].value), "range of 2 launches");
  EXPECT_EQ(all->rows[0].details.at("bus"), 23);
  EXPECT_EQ(all->rows[0].words.at("kernel"), "one; other") << "launches raced for themselves";
  EXPECT_EQ(all->rows[1].words.at("kernel"), "one");
  EXPECT_TRUE(all->rows[0].flags.empty()) << "no longer few";
  EXPECT_EQ(all->rows[1].experiment, "b");
  EXPECT_TRUE(all->rows[1].launches.empty()) << "one launch has it";
  EXPECT_EQ(interval_words(*all->rows[1].value), "range of 3");
  EXPECT_EQ(all->conditions.at("launches"), "3");
  EXPECT_EQ(all->conditions.at("date"), "now");
}

TEST(Merge, TwoSamplesOfTwoLaunches_StayFew) {
  const std::vector launches = {launch({measured("a", {10}, {"few"})}),
                                launch({measured("a", {12}, {"few"})})};
  EXPECT_EQ(merge(launches)->rows[0].flags, std::vector<std::string>{"few"});
}

// Launches differ more than their samples do: the interval is over launches.
TEST(Merge, TakesTheIntervalOverLaunchesAlsoOfProfilesThatWereMerged) {
  std::vector<Profile> launches;
  for (int i = 0; i < 6; ++i) {
    const double level = 100 + 10 * i;
    launches.push_back(launch({measured("a", {level, level + 1, level + 2})}));
  }
  const auto all = merge(launches);
  const Summary& value = *all->rows[0].value;
  EXPECT_EQ(interval_words(value), "95 % of 6 launches");
  EXPECT_LT(value.interval.low, 105);
  EXPECT_GT(value.interval.high, 147);
  const auto begun = merge(std::span(launches).first(2));
  const auto rest = merge(std::span(launches).last(4));
  const auto again = merge(std::vector{*begun, *rest});
  EXPECT_EQ(again->rows[0].launches, all->rows[0].launches);
  EXPECT_EQ(again->rows[0].value->interval.low, value.interval.low);
}

TEST(Merge, LeavesOutNoisyLaunchesWhereAQuietOneIsKnown) {
  const auto all = merge(std::vector{launch({measured("a", {10, 10, 10})}),
                                     launch({measured("a", {30, 30, 30}, {"noisy"})})});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->rows[0].value->median, 10);
  EXPECT_TRUE(all->rows[0].flags.empty());
  const auto noisy = merge(std::vector{launch({measured("a", {10, 10, 10}, {"noisy"})}),
                                       launch({measured("a", {30, 30, 30}, {"noisy"})})});
  EXPECT_EQ(noisy->rows[0].value->median, 20);
  EXPECT_EQ(noisy->rows[0].flags, std::vector<std::string>{"noisy"});
}

// One launch with memory not all in huge pages is among the row's samples.
TEST(Merge, LaunchOutsideHugePages_KeepsTheFlag) {
  const Profile huge = launch({measured("a", {10, 10, 10})});
  const Profile small = launch({measured("a", {30, 30, 30}, {"not_huge"})});
  const std::vector<std::string> flag{"not_huge"};
  EXPECT_EQ(merge(std::vector{huge, small})->rows[0].flags, flag);
  EXPECT_EQ(merge(std::vector{small, huge})->rows[0].flags, flag);
  EXPECT_TRUE(merge(std::vector{huge, huge})->rows[0].flags.empty());
}

TEST(Merge, IsUnsteadyOrPartlyCachedWhereMostLaunchesWere) {
  const Profile steady = launch({measured("a", {10, 10, 10})});
  for (const char* flag : {"unsteady", "partly_cached"}) {
    const Profile flagged = launch({measured("a", {30, 30, 30}, {flag})});
    EXPECT_TRUE(merge(std::vector{flagged, steady})->rows[0].flags.empty());
    EXPECT_TRUE(merge(std::vector{flagged, steady, steady})->rows[0].flags.empty());
    EXPECT_EQ(merge(std::vector{steady, flagged, flagged})->rows[0].flags,
              std::vector<std::string>{flag});
  }
}

TEST(Merge, AddsUpConditionsAndTeachesTheMachineFromAllRows) {
  Profile first;
  first.machine = Machine::load("xeon-max").value();
  Row row{.experiment = "bandwidth",
          .parameters = {{"cpu_node", std::uint64_t{0}},
                         {"memory_node", std::uint64_t{8}},
                         {"mix", "read"},
                         {"threads", std::uint64_t{12}}},
          .samples = {100e9, 100e9, 100e9}};
  row.value = summarize(row.samples);
  first.rows = {row};
  first.conditions = {{"budget_s", "20.0"}, {"looks_disturbed", "3 of 9"}, {"rounds", "4"}};
  Profile second = first;
  second.rows[0].samples = {200e9, 200e9, 200e9};
  second.rows[0].value = summarize(second.rows[0].samples);
  second.conditions["looks_disturbed"] = "1 of 5";
  second.conditions["stopped"] = "before its end";
  const auto all = merge(std::vector{first, second});
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->conditions.at("budget_s"), "40");
  EXPECT_EQ(all->conditions.at("looks_disturbed"), "4 of 14");
  EXPECT_EQ(all->conditions.at("rounds"), "8");
  EXPECT_EQ(all->conditions.at("stopped"), "before its end");
  const Node* node = all->machine.find(NodeId{8});
  const auto known = std::ranges::find(node->access, true, &AccessAttributes::measured);
  ASSERT_NE(known, node->access.end());
  EXPECT_EQ(known->read_bandwidth->value, 150e9);
}

TEST(Merge, KeepsReasonsAndRefusesNonsense) {
  const Row missing{.experiment = "a", .reason = "no node"};
  EXPECT_EQ(merge(std::vector{launch({missing}), launch({missing})})->rows[0].reason, "no node");
  EXPECT_EQ(merge({}).error().code, ErrorCode::invalid);
  Profile other = launch({});
  other.machine.name = "elsewhere";
  EXPECT_EQ(merge(std::vector{launch({}), other}).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
