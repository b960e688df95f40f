// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "headrace/clock.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/idle_cycle.h"
#include "measure/instruments/chase.h"
#include "measure/session/probe_testing.h"
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
    const auto sample = sample_of(point, buffers, random);
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_GT(sample->value, 0.1) << "no load is faster than light through a core";
    EXPECT_GT(sample->cpu_share, 0);
  }
  EXPECT_TRUE(small);
}

// The number of loads between two positions of the cycle, and a clock, bound the value from both
// sides.
TEST(LatencyTest, TheValueIsTheTimeOfOneLoad) {
  const Machine machine = test::small_host(1_GiB);  // more lines than are chased
  BufferPool buffers(machine);
  Random random(1);
  std::size_t seen = 0;
  for (const Point& point : kExperiment.points({machine})) {
    if (!point.of_matrix || point.row.word("pages") != "huge") continue;
    const Bytes bytes{*point.row.number("bytes")};
    const unsigned cpu = parse_cpu_list(point.row.cpus)->front();
    const auto probe = point.prepare(buffers, random);
    ASSERT_TRUE(probe) << probe.error().message;
    const auto cycle = idle_cycle(buffers, random, point.memory, bytes, cpu);
    ASSERT_TRUE(cycle);
    const std::size_t before = index_in_cycle(cycle->at);
    const Nanoseconds begin = system_clock().now();
    const auto sample = (*probe)->sample();
    const Nanoseconds wall = system_clock().now() - begin;
    ASSERT_TRUE(sample);
    const std::size_t lines = bytes.value / kLine;
    const std::size_t passed = (index_in_cycle(cycle->at) + lines - before) % lines;
    constexpr std::size_t kWarmUp = 16384;
    ASSERT_GT(passed, kWarmUp) << "where the next chase begins";
    const double time = sample->value * static_cast<double>(passed - kWarmUp);
    EXPECT_GE(time, 0.999e7) << "10 ms";
    EXPECT_LE(time, static_cast<double>(wall.count()));
    // A second chase of the same lines, after a walk over other memory.
    EXPECT_EQ(sample->details.contains("after_walk"),
              *point.row.number("cpu_node") == *point.row.number("memory_node"));
    ++seen;
  }
  EXPECT_GE(seen, 1U);
}

}  // namespace
}  // namespace headrace::experiment_latency
