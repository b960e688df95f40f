// SPDX-License-Identifier: Apache-2.0
#include "place/advice/curves.h"

#include <gtest/gtest.h>

#include "place/advice/advice_testing.h"

namespace headrace {
namespace {

Row loaded(std::uint64_t memory, std::string mix, double bandwidth, double latency_ns) {
  Row row;
  row.experiment = "loaded";
  row.parameters = {{"cpu_node", std::uint64_t{0}},
                    {"memory_node", memory},
                    {"traffic_cpu_node", std::uint64_t{0}},
                    {"traffic_memory_node", memory},
                    {"mix", std::move(mix)},
                    {"delay_ns", std::uint64_t{0}}};
  row.value = Summary{.median = latency_ns};
  row.details["bandwidth"] = bandwidth;
  return row;
}

const MemoryCurve& only(const MemoryCurves& curves) {
  EXPECT_EQ(curves.found.size(), 1u);
  return curves.found.front();
}

TEST(CurvesTest, MixesAreWhatTheMemorySees) {
  EXPECT_DOUBLE_EQ(mix_traffic("read")->bus, 1);
  EXPECT_DOUBLE_EQ(mix_traffic("2:1")->bus, 4.0 / 3);
  EXPECT_DOUBLE_EQ(mix_traffic("2:1")->write_share, 0.25) << "3:1 on the bus";
  EXPECT_DOUBLE_EQ(mix_traffic("1:1")->write_share, 1.0 / 3);
  EXPECT_DOUBLE_EQ(mix_traffic("0:1")->bus, mix_traffic("write")->bus);
  EXPECT_DOUBLE_EQ(mix_traffic("1:0")->write_share, 0);
  for (const char* bad : {"", "reads", "2:", ":1", "2:1:1", "0:0", "-1:2", "2:1 ", "9999999:1"}) {
    EXPECT_EQ(mix_traffic(bad).error().code, ErrorCode::invalid) << bad;
  }
}

TEST(CurvesTest, BandwidthIsTheMemorysWhereTheRowHasTheProgramsOnly) {
  Profile profile;
  profile.rows = {loaded(0, "2:1", 30e9, 100)};
  EXPECT_DOUBLE_EQ(only(*memory_curves(profile, NodeId{0}, "2:1")).curve.best(), 40e9);
  profile.rows[0].details["bus"] = 41e9;
  EXPECT_DOUBLE_EQ(only(*memory_curves(profile, NodeId{0}, "2:1")).curve.best(), 41e9);
}

TEST(CurvesTest, AMixBetweenTwoIsInterpolatedAndSaysSo) {
  Profile profile;
  profile.rows = {loaded(0, "read", 80e9, 200), loaded(0, "write", 30e9, 400)};
  // 1:1 has a third of writes on the bus, which is two thirds of the way from none to a half.
  const auto curves = memory_curves(profile, NodeId{0}, "1:1");
  EXPECT_NEAR(only(*curves).curve.best(), 80e9 / 3 + 60e9 * 2 / 3, 1);
  EXPECT_NEAR(only(*curves).curve.idle_ns(), 200.0 / 3 + 400.0 * 2 / 3, 1e-9);
  EXPECT_EQ(only(*curves).between, "read and write");
}

TEST(CurvesTest, AMixOutsideOfAllIsLeftOut) {
  Profile profile;
  profile.rows = {loaded(0, "read", 80e9, 200), loaded(0, "2:1", 30e9, 400),
                  loaded(0, "nt_write", 30e9, 400)};
  const auto curves = memory_curves(profile, NodeId{0}, "write");
  EXPECT_TRUE(curves->found.empty());
  ASSERT_EQ(curves->left_out.size(), 1u);
  EXPECT_EQ(curves->left_out[0].node, NodeId{0});
  EXPECT_EQ(curves->left_out[0].mixes, "read, 2:1, nt_write");
}

TEST(CurvesTest, PointOutOfBounds_IsRefusedWithItsNode) {
  for (const auto& [bandwidth, latency_ns] : {std::pair{-1.0, 200.0}, {80e9, 0.0}, {1e308, 200}}) {
    Profile profile;
    profile.rows = {loaded(3, "read", bandwidth, latency_ns)};
    const auto curves = memory_curves(profile, NodeId{0}, "read");
    ASSERT_FALSE(curves);
    EXPECT_EQ(curves.error().code, ErrorCode::invalid);
    EXPECT_TRUE(curves.error().message.starts_with("node 3, mix read: a point of"));
  }
}

TEST(CurvesTest, LoadFromAnotherNode_IsNoCurve) {
  Profile profile;
  profile.rows = {loaded(0, "read", 80e9, 200)};
  profile.rows[0].parameters[2].second = std::uint64_t{1};
  EXPECT_TRUE(observers(profile).empty());
  EXPECT_TRUE(memory_curves(profile, NodeId{0}, "read")->found.empty());
}

TEST(CurvesTest, TheLeastOfManyRunsIsTakenInsteadOfAFit) {
  const auto profile = Profile::load("cxl-a1000");
  const auto curves = memory_curves(*profile, NodeId{0}, "read");
  ASSERT_EQ(curves->found.size(), 2u);
  EXPECT_FALSE(curves->found[0].fitted);
  EXPECT_EQ(curves->found[0].basis, Basis::published);
  EXPECT_NEAR(curves->found[0].curve.best(), 69.3e9, 0.1e9);
  EXPECT_NEAR(curves->found[1].curve.best(), 48.0e9, 0.1e9);
  EXPECT_TRUE(memory_curves(*profile, NodeId{7}, "read")->found[0].fitted);
}

}  // namespace
}  // namespace headrace
