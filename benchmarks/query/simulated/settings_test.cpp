// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/simulated/settings.h"

#include <gtest/gtest.h>

namespace headrace::simulated {
namespace {

Machine xeon_max() { return *Machine::load("xeon-max"); }

std::string refused(std::string_view options) {
  const auto settings = read_settings(xeon_max(), options);
  return settings ? "" : settings.error().message;
}

TEST(SimulatedSettings, Default_IsEachTileFromItsMemoryToItsHbm) {
  const auto settings = read_settings(xeon_max(), "{}");
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  ASSERT_EQ(settings->groups.size(), 8U);
  EXPECT_EQ(settings->groups[3].cpus, NodeId{3});
  EXPECT_EQ(settings->groups[3].slow, NodeId{3});
  EXPECT_EQ(settings->groups[3].fast, NodeId{11});
  EXPECT_EQ(settings->threads, 12U);
}

TEST(SimulatedSettings, CopyingCores_DoNotScan) {
  const auto settings = read_settings(xeon_max(), R"({"engine": "cpu", "workers": 5})");
  ASSERT_TRUE(settings.has_value());
  EXPECT_EQ(settings->threads, 7U);
}

TEST(SimulatedSettings, WrongMembers_AreNamed) {
  EXPECT_EQ(refused("[]"), "options: no JSON object");
  EXPECT_EQ(refused(R"({"query": "q7"})"), "options: \"query\" is \"q7\"; give sum, q6, q1");
  EXPECT_EQ(refused(R"({"mode": 3})"),
            "options: \"mode\" is 3; give prefetch, direct, resident, cache");
  EXPECT_EQ(refused(R"({"passes": 0})"),
            "options: \"passes\" is 0; give a whole number from 1 to 1000");
  EXPECT_EQ(refused(R"({"lead_seconds": -1})"),
            "options: \"lead_seconds\" is -1; give a number above 0");
  EXPECT_EQ(refused(R"({"chunk_bytes": 1})"),
            "options: \"chunk_bytes\" is 1; give a whole number of bytes, at least 4096");
  EXPECT_EQ(refused(R"({"groups": []})"),
            "options: \"groups\" must be a list of {\"cpus\": NODE, \"slow\": NODE, \"fast\": "
            "NODE}");
  EXPECT_EQ(refused(R"({"groups": [{"cpus": 8, "slow": 0, "fast": 8}]})"),
            "node 8 has no CPUs for a group");
  EXPECT_NE(refused(R"({"groups": [{"cpus": 0, "slow": 0, "fast": 47}]})").find("47"),
            std::string::npos);
  EXPECT_NE(refused(R"({"lead": 1})").find("no option \"lead\"; there are aggregators, "),
            std::string::npos);
  EXPECT_EQ(refused(R"({"groups": 9})"), "9 groups; xeon-max has 8 nodes with CPUs");
  EXPECT_EQ(refused(R"({"aggregators": 2})"),
            "options: \"aggregators\" need \"threads\" beside them");
  EXPECT_EQ(refused(R"({"operators": {"columns": []}})"),
            "options: \"operators\" are not those of measure_operators");
  EXPECT_EQ(refused(R"({"operators": {"columns": [{"column": "l_tax", "bytes_per_cycle": 1}],
                        "cycles_per_second": 1e9, "vector_bytes": 16}})"),
            "options: \"operators\" are those of another query than q6");
}

TEST(SimulatedSettings, MachineWithoutHbm_NeedsGroups) {
  const Machine machine = *Machine::load("cxl-a1000");
  EXPECT_EQ(read_settings(machine, "{}").error().code, ErrorCode::absent);
  EXPECT_TRUE(read_settings(machine, R"({"mode": "direct"})").has_value());
}

TEST(SimulatedSettings, Route_UsesOnlyEnginesOfOneKind) {
  const Machine machine = xeon_max();
  for (const EngineKind kind : {EngineKind::cpu, EngineKind::dsa}) {
    const auto policy = route_over(machine, kind, "smart");
    ASSERT_TRUE(policy.has_value());
    const auto route = (*policy)(machine, {NodeId{0}, NodeId{8}, 64_MiB});
    ASSERT_TRUE(route.has_value()) << route.error().message;
    EXPECT_FALSE(route->parts.empty());
    for (const RoutePart& part : route->parts) {
      EXPECT_EQ(machine.find(part.engine)->kind, kind);
    }
  }
}

}  // namespace
}  // namespace headrace::simulated
