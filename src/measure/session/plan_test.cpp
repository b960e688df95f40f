// SPDX-License-Identifier: Apache-2.0
// The points that a budget keeps, with points that measure nothing.
#include "measure/session/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "measure/instruments/traffic/traffic_race.h"

namespace headrace::session {
namespace {

Point costing(std::string name, unsigned rank, Nanoseconds cost, SharedSetup setup = {}) {
  Point made;
  made.row = {.experiment = std::move(name), .unit = "ns"};
  made.rank = rank;
  made.cost = cost;
  made.setup = std::move(setup);
  return made;
}

TEST(LeaveOut, KeepsWhatIsWantedMostAndSaysSo) {
  std::vector<Point> points = {
      costing("a", 2, std::chrono::seconds{1}), costing("b", 0, std::chrono::seconds{1}),
      costing("c", 1, std::chrono::seconds{1}), costing("d", 0, std::chrono::seconds{1})};
  points.push_back(without({.experiment = "e"}, "absent"));
  leave_out(points, {.budget = std::chrono::seconds{8}});  // 6.8 s for points: two of 3 s
  EXPECT_NE(points[0].row.reason.find("left out: a budget of 8 s"), std::string::npos);
  EXPECT_EQ(points[0].row.reason.find("--"), std::string::npos) << "not every caller has options";
  EXPECT_EQ(points[0].row.reason.find("none"), std::string::npos) << "which is no budget";
  EXPECT_EQ(points[1].row.reason, "");
  EXPECT_NE(points[2].row.reason, "");
  EXPECT_EQ(points[3].row.reason, "");
  EXPECT_EQ(points[4].row.reason, "absent");
  EXPECT_TRUE(points[0].row.has_flag("left_out"));
  EXPECT_TRUE(points[4].row.has_flag("absent"));
  std::vector<Point> all = {costing("a", 9, std::chrono::seconds{1000})};
  leave_out(all, {.budget = std::nullopt});
  EXPECT_EQ(all[0].row.reason, "");
}

std::vector<bool> measured(std::vector<Point> points, const MeasureOptions& options) {
  leave_out(points, options);
  std::vector<bool> in;
  for (const Point& point : points) in.push_back(point.row.reason.empty());
  return in;
}

TEST(LeaveOut, PassesOverWhatDoesNotFit) {
  using std::chrono::seconds;
  const std::vector<Point> points = {costing("a", 0, seconds{1}), costing("b", 1, seconds{4}),
                                     costing("c", 2, seconds{1})};
  EXPECT_EQ(measured(points, {.budget = seconds{8}}), (std::vector<bool>{true, false, true}));
}

TEST(LeaveOut, CountsWhatPointsShareOnce) {
  using std::chrono::milliseconds;
  const SharedSetup arrays{.name = "arrays", .cost = milliseconds{2000}};
  std::vector<Point> points;
  for (int i = 0; i < 4; ++i) points.push_back(costing("s", 0, milliseconds{50}, arrays));
  const MeasureOptions options{.budget = std::chrono::seconds{8}};
  EXPECT_EQ(measured(points, options), std::vector<bool>(4, true)) << "3 x (2 s + 4 x 0.05 s)";
  for (Point& point : points) point.setup.name += std::to_string(&point - points.data());
  EXPECT_EQ(measured(points, options), (std::vector<bool>{true, false, false, false}));
}

TEST(LeaveOut, TheMostWantedStaysHoweverLongItTakes) {
  using std::chrono::seconds;
  const std::vector<Point> points = {costing("a", 1, seconds{9}), costing("b", 0, seconds{99}),
                                     costing("c", 0, seconds{5})};
  EXPECT_EQ(measured(points, {.budget = seconds{8}}), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(measured(points, {.budget = seconds{8}, .rounds = 1, .repetitions = 1}),
            (std::vector<bool>{true, false, true}))
      << "1/3 of three repetitions: 3 s and 1.67 s";
}

TEST(LeaveOut, EveryExperimentHasItsShare) {
  using std::chrono::seconds;
  std::vector<Point> points;
  for (int i = 0; i < 9; ++i) points.push_back(costing("first", 0, seconds{1}));
  points.push_back(costing("second", 3, seconds{1}));
  points.push_back(costing("second", 2, seconds{1}));
  // 13.6 s for points, four of 3 s: three shares for the first experiment, one for the second.
  leave_out(points, {.budget = seconds{16}}, {{"first", 3}, {"second", 1}});
  const auto count = [&](std::string_view experiment) {
    return std::ranges::count_if(points, [&](const Point& point) {
      return point.row.experiment == experiment && point.row.reason.empty();
    });
  };
  EXPECT_EQ(count("first"), 3);
  EXPECT_EQ(count("second"), 1);
  EXPECT_EQ(points.back().row.reason, "") << "the more wanted one of its own";
}

// However often its points are measured.
TEST(TimesOf, ARaceIsRunOnce) {
  using std::chrono::milliseconds;
  std::vector<Point> points(3, costing("a", 0, milliseconds{10}));
  points[0].races = {"read by 2"};
  points[1].races = {"read by 2", "write by 2"};
  EXPECT_EQ(times_of(points, {.rounds = 4}),
            (std::vector<Nanoseconds>{milliseconds{40} + kRaceTime, milliseconds{40} + kRaceTime,
                                      milliseconds{40}}));
  for (Point& point : points) point.cost = std::chrono::seconds{1};
  const MeasureOptions six{.budget = std::chrono::milliseconds{3600}, .rounds = 1};
  EXPECT_EQ(measured(points, six), (std::vector<bool>{true, true, false})) << "of 3.06 s";
}

TEST(LeastMappings, OfSeveralLaunchesEachMeasuresTwiceAndOnceWhatIsWantedLast) {
  Point point = costing("a", 3, std::chrono::seconds{1});
  const MeasureOptions all{.budget = std::nullopt, .launches = 6};
  EXPECT_EQ(least_mappings(point, all), 2U);
  EXPECT_TRUE(is_counted(point, all));
  point.rank = kWantedLast;
  EXPECT_EQ(least_mappings(point, all), 1U);
  EXPECT_EQ(least_mappings(point, {.budget = std::nullopt, .rounds = 5, .launches = 6}), 5U);
  EXPECT_EQ(least_mappings(point, {.budget = std::chrono::seconds{9}, .launches = 6}), 3U);
  EXPECT_EQ(least_mappings(point, {.budget = std::nullopt}), 6U);
  EXPECT_FALSE(is_counted(point, {.budget = std::nullopt}));
}

TEST(TimesOf, WhatIsSharedIsCountedAtTheFirst) {
  using std::chrono::seconds;
  const SharedSetup arrays{.name = "arrays", .cost = seconds{2}};
  std::vector<Point> points(3, costing("a", 0, seconds{1}, arrays));
  points[0].row.reason = "left out";
  EXPECT_EQ(times_of(points, {}), (std::vector<Nanoseconds>{seconds{0}, seconds{9}, seconds{3}}));
}

}  // namespace
}  // namespace headrace::session
