#include <gtest/gtest.h>

#include "headrace/profile.h"

namespace headrace {
namespace {

Row measured(std::string name, std::vector<double> samples, std::vector<std::string> flags = {}) {
  Row row{.experiment = std::move(name), .samples = std::move(samples), .flags = std::move(flags)};
  row.value = summarize(row.samples);
  row.details["bus"] = row.value->median * 2;
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
  EXPECT_EQ(all->rows[0].value->median, 11.5);
  EXPECT_EQ(all->rows[0].details.at("bus"), 23);
  EXPECT_TRUE(all->rows[0].flags.empty()) << "no longer few";
  EXPECT_EQ(all->rows[1].experiment, "b");
  EXPECT_EQ(all->conditions.at("launches"), "3");
  EXPECT_EQ(all->conditions.at("date"), "now");
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
