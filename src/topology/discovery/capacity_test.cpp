// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/capacity.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

NodeFacts node(unsigned id, std::optional<Bytes> meminfo, std::optional<Bytes> hwloc = {}) {
  return {.id = id, .meminfo_total = meminfo, .hwloc_total = hwloc};
}

TEST(CapacityTest, ANodesOwnMeminfoCounts) {
  const auto chosen = choose_capacities({node(0, 8_GiB), node(1, 4_GiB)}, 12_GiB);
  EXPECT_EQ(chosen.nodes[1].bytes, 4_GiB);
  EXPECT_EQ(chosen.nodes[1].source, "node meminfo");
  EXPECT_TRUE(chosen.warnings.empty());
}

TEST(CapacityTest, ALittleDifferenceIsNone) {
  const auto chosen = choose_capacities({node(0, 8_GiB)}, 8_GiB + 10_MiB);
  EXPECT_EQ(chosen.nodes[0].bytes, 8_GiB);
  EXPECT_TRUE(chosen.warnings.empty());
}

TEST(CapacityTest, OneNodeThatContradictsTheSystemYields) {
  const auto chosen = choose_capacities({node(0, 4_GiB, 4_GiB)}, 24_GiB);
  EXPECT_EQ(chosen.nodes[0].bytes, 24_GiB);
  EXPECT_EQ(chosen.nodes[0].source, "/proc/meminfo (node meminfo says 4 GiB)");
  ASSERT_EQ(chosen.warnings.size(), 1u);
  EXPECT_NE(chosen.warnings[0].find("node 0: node meminfo says 4 GiB but /proc/meminfo 24 GiB"),
            std::string::npos);
}

TEST(CapacityTest, SeveralNodesKeepTheirsWithAWarning) {
  const auto chosen = choose_capacities({node(0, 4_GiB), node(1, 4_GiB)}, 24_GiB);
  EXPECT_EQ(chosen.nodes[0].bytes, 4_GiB);
  EXPECT_EQ(chosen.nodes[0].source, "node meminfo (contradicts /proc/meminfo)");
  ASSERT_EQ(chosen.warnings.size(), 1u);
}

TEST(CapacityTest, Hwloc_IsUsedWithoutMeminfoAndComparedWithIt) {
  const auto alone = choose_capacities({node(0, std::nullopt, 8_GiB)}, 8_GiB);
  EXPECT_EQ(alone.nodes[0].bytes, 8_GiB);
  EXPECT_EQ(alone.nodes[0].source, "hwloc");
  const auto apart = choose_capacities({node(0, 8_GiB, 2_GiB)}, 8_GiB);
  EXPECT_EQ(apart.nodes[0].bytes, 8_GiB);
  ASSERT_EQ(apart.warnings.size(), 1u);
  EXPECT_EQ(apart.warnings[0], "node 0: node meminfo says 8 GiB but hwloc 2 GiB");
}

TEST(CapacityTest, ATotalOfZero_IsUnknown) {
  const auto one = choose_capacities({node(0, 4_GiB)}, 0_B);
  EXPECT_EQ(one.nodes[0].bytes, 4_GiB);
  EXPECT_EQ(one.nodes[0].source, "node meminfo");
  EXPECT_TRUE(one.warnings.empty());
  const auto several = choose_capacities({node(0, 4_GiB), node(1, 4_GiB)}, 0_B);
  EXPECT_EQ(several.nodes[1].bytes, 4_GiB);
  EXPECT_TRUE(several.warnings.empty());
}

TEST(CapacityTest, ZeroOfTheOnlyNode_IsUnknown) {
  const auto by_total = choose_capacities({node(0, 0_B, 0_B)}, 24_GiB);
  EXPECT_EQ(by_total.nodes[0].bytes, 24_GiB);
  EXPECT_EQ(by_total.nodes[0].source, "/proc/meminfo");
  const auto by_hwloc = choose_capacities({node(0, 0_B, 24_GiB)}, std::nullopt);
  EXPECT_EQ(by_hwloc.nodes[0].bytes, 24_GiB);
  EXPECT_EQ(by_hwloc.nodes[0].source, "hwloc");
  for (const std::optional<Bytes> total : {std::optional<Bytes>{}, std::optional{0_B}}) {
    const auto by_none = choose_capacities({node(0, 0_B)}, total);
    EXPECT_EQ(by_none.nodes[0].bytes, std::nullopt);
    EXPECT_EQ(by_none.nodes[0].source, "unknown");
  }
}

TEST(CapacityTest, ZeroOfOneNodeAmongSeveral_Stays) {
  const auto chosen = choose_capacities({node(0, 8_GiB), node(1, 0_B)}, 8_GiB);
  EXPECT_EQ(chosen.nodes[1].bytes, 0_B);
  EXPECT_EQ(chosen.nodes[1].source, "node meminfo");
  EXPECT_TRUE(chosen.warnings.empty());
}

TEST(CapacityTest, UnknownStaysUnknown) {
  const auto several = choose_capacities({node(0, std::nullopt), node(1, 4_GiB)}, 24_GiB);
  EXPECT_EQ(several.nodes[0].bytes, std::nullopt);
  EXPECT_EQ(several.nodes[0].source, "unknown");
  EXPECT_TRUE(several.warnings.empty());
  const auto one = choose_capacities({node(0, std::nullopt)}, 24_GiB);
  EXPECT_EQ(one.nodes[0].bytes, 24_GiB);
  EXPECT_EQ(one.nodes[0].source, "/proc/meminfo");
  EXPECT_EQ(choose_capacities({node(0, std::nullopt)}, std::nullopt).nodes[0].bytes, std::nullopt);
}

}  // namespace
}  // namespace headrace
