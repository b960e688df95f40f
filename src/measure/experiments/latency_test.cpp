// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "measure/experiments/experiments.h"
#include "tests/support/machines.h"

namespace headrace::experiment_latency {

using namespace session;

namespace {

// A machine with nodes of several kinds has a point for every pair.
TEST(LatencyTest, EveryPairOfNodesHasItsPoints) {
  Machine machine = test::small_machine();
  machine.nodes[0].cpus = {0};
  for (Node& node : machine.nodes) node.capacity = 1_GiB;
  std::set<std::uint64_t> nodes;
  for (const Point& point : kExperiment.points({machine})) {
    nodes.insert(std::get<std::uint64_t>(*point.row.parameter("memory_node")));
  }
  std::size_t memories = 0;
  for (const Node& node : machine.nodes) memories += node.byte_addressable();
  EXPECT_EQ(nodes.size(), memories);
}

TEST(LatencyTest, APointGivesItsLatency) {
  const Machine machine = test::small_host();
  BufferPool buffers(machine);
  Random random(1);
  bool small = false;
  for (const Point& point : kExperiment.points({machine})) {
    const auto bytes = std::get<std::uint64_t>(*point.row.parameter("bytes"));
    if (bytes != 4096 && bytes != (8_MiB).value) continue;
    small = small || bytes == 4096;
    const auto probe = point.prepare(buffers, random);
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    const auto sample = (*probe)->sample();
    ASSERT_TRUE(sample.has_value());
    EXPECT_GT(sample->value, 0.1) << "no load is faster than light through a core";
    EXPECT_GT(sample->cpu_share, 0);
  }
  EXPECT_TRUE(small);
}

}  // namespace
}  // namespace headrace::experiment_latency
