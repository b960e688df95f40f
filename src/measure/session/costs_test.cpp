// SPDX-License-Identifier: Apache-2.0
#include "measure/session/costs.h"

#include <gtest/gtest.h>

#include "measure/instruments/traffic/traffic_race.h"

namespace headrace::session {
namespace {

using std::chrono::milliseconds;

Point point(std::string experiment, Nanoseconds cost, SharedSetup setup = {}) {
  Point made;
  made.row.experiment = std::move(experiment);
  made.cost = cost;
  made.setup = std::move(setup);
  return made;
}

TEST(CostsTest, AreLearnedFromThePointThenItsExperimentThenAll) {
  Costs costs;
  costs.add(point("a", milliseconds{10}), 3);
  costs.add(point("a", milliseconds{20}), 3);
  costs.add(point("b", milliseconds{40}), 3);
  costs.add(point("b", milliseconds{30}), 1);
  EXPECT_EQ(costs.of(0), milliseconds{10});
  EXPECT_EQ(costs.of(3), milliseconds{10}) << "one repetition of three";
  costs.learn(0, milliseconds{30});
  costs.learn(0, milliseconds{50});
  EXPECT_EQ(costs.of(0), milliseconds{40}) << "its own";
  EXPECT_EQ(costs.of(1), milliseconds{80}) << "four times what was estimated";
  EXPECT_EQ(costs.of(2), milliseconds{160}) << "no other of its experiment";
  costs.learn(3, milliseconds{10});
  EXPECT_EQ(costs.of(2), milliseconds{40}) << "as estimated there";
}

TEST(CostsTest, ARaceIsNoTimeOfThePointThatRunsIt) {
  using instruments::kRaceTime;
  Costs costs;
  Point raced = point("a", milliseconds{10});
  raced.races = {"read by 2"};
  for (int i = 0; i < 3; ++i) costs.add(raced, 3);
  EXPECT_EQ(costs.of(1), milliseconds{10} + kRaceTime);
  costs.learn(0, milliseconds{20} + kRaceTime);
  EXPECT_EQ(costs.of(0), milliseconds{20});
  EXPECT_EQ(costs.of(1), milliseconds{20}) << "known now";
  costs.learn(1, milliseconds{40});
  EXPECT_EQ(costs.of(2), milliseconds{30});
}

TEST(CostsTest, WhatIsToBeDoneTogetherHasEachRaceOnce) {
  using instruments::kRaceTime;
  Costs costs;
  Point raced = point("a", milliseconds{10});
  raced.races = {"read by 2"};
  costs.add(raced, 3);
  costs.add(raced, 3);
  raced.races = {"read by 2", "write by 2"};
  costs.add(raced, 3);
  EXPECT_EQ(costs.of({{0, 5}}), milliseconds{50} + kRaceTime);
  EXPECT_EQ(costs.of({{0, 5}, {1, 1}}), milliseconds{60} + kRaceTime);
  EXPECT_EQ(costs.of({{0, 5}, {1, 1}, {2, 2}}), milliseconds{80} + 2 * kRaceTime);
  costs.learn(1, milliseconds{10} + kRaceTime);
  EXPECT_EQ(costs.of({{0, 5}, {2, 2}}), milliseconds{70} + kRaceTime) << "one is known";
}

TEST(CostsTest, WhatPointsShareFallsOnAllOfThem) {
  Costs costs;
  const SharedSetup arrays{.name = "arrays", .cost = milliseconds{100}};
  for (int i = 0; i < 4; ++i) costs.add(point("a", milliseconds{10}, arrays), 3);
  EXPECT_EQ(costs.of(2), milliseconds{35});
}

}  // namespace
}  // namespace headrace::session
