// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/capacity.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

NodeFacts node(unsigned id, std::optional<Bytes> meminfo, std::optional<Bytes> hwloc = {}) {
  return {.id = id, .meminfo_total = meminfo, .hwloc_total = hwloc};
}

constexpr std::optional<Bytes> kUnknown;

struct CapacityCase {
  const char* name;
  std::vector<NodeFacts> nodes;
  std::optional<Bytes> total;
  std::optional<Bytes> bytes;  // of the last node
  const char* source;
  const char* warning = "";
};

TEST(CapacityTest, TheTable) {
  const CapacityCase cases[] = {
      {"a node's own meminfo counts",
       {node(0, 8_GiB), node(1, 4_GiB)},
       12_GiB,
       4_GiB,
       "node meminfo"},
      {"a little difference is none", {node(0, 8_GiB)}, 8_GiB + 10_MiB, 8_GiB, "node meminfo"},
      {"an only node that contradicts the system yields",
       {node(0, 4_GiB, 4_GiB)},
       24_GiB,
       24_GiB,
       "/proc/meminfo (node meminfo says 4 GiB)",
       "node 0: node meminfo says 4 GiB but /proc/meminfo 24 GiB"},
      {"several nodes keep theirs",
       {node(0, 4_GiB), node(1, 4_GiB)},
       24_GiB,
       4_GiB,
       "node meminfo (contradicts /proc/meminfo)",
       "the nodes have 8 GiB together"},
      {"hwloc without meminfo", {node(0, kUnknown, 8_GiB)}, 8_GiB, 8_GiB, "hwloc"},
      {"hwloc that contradicts meminfo",
       {node(0, 8_GiB, 2_GiB)},
       8_GiB,
       8_GiB,
       "node meminfo",
       "node 0: node meminfo says 8 GiB but hwloc 2 GiB"},
      {"a total of 0 is unknown", {node(0, 4_GiB)}, 0_B, 4_GiB, "node meminfo"},
      {"also with several nodes", {node(0, 4_GiB), node(1, 4_GiB)}, 0_B, 4_GiB, "node meminfo"},
      {"0 of the only node is unknown", {node(0, 0_B, 0_B)}, 24_GiB, 24_GiB, "/proc/meminfo"},
      {"also by hwloc",
       {node(0, 0_B, 24_GiB)},
       kUnknown,
       24_GiB,
       "hwloc",
       "node 0: node meminfo says 0 B but hwloc 24 GiB"},
      {"0 of the only node and no total", {node(0, 0_B)}, kUnknown, kUnknown, "unknown"},
      {"0 of the only node and in all", {node(0, 0_B)}, 0_B, kUnknown, "unknown"},
      {"0 of one node among several stays",
       {node(0, 8_GiB), node(1, 0_B)},
       8_GiB,
       0_B,
       "node meminfo"},
      {"unknown among several", {node(1, 4_GiB), node(0, kUnknown)}, 24_GiB, kUnknown, "unknown"},
      {"an only unknown node has the total", {node(0, kUnknown)}, 24_GiB, 24_GiB, "/proc/meminfo"},
      {"nothing is known", {node(0, kUnknown)}, kUnknown, kUnknown, "unknown"},
  };
  for (const CapacityCase& each : cases) {
    SCOPED_TRACE(each.name);
    const auto chosen = choose_capacities(each.nodes, each.total);
    EXPECT_EQ(chosen.nodes.back().bytes, each.bytes);
    EXPECT_EQ(chosen.nodes.back().source, each.source);
    ASSERT_EQ(chosen.warnings.size(), *each.warning == '\0' ? 0u : 1u);
    for (const std::string& warning : chosen.warnings) {
      EXPECT_TRUE(warning.starts_with(each.warning)) << warning;
    }
  }
}

}  // namespace
}  // namespace headrace
