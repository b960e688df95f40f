// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "measure/experiments/experiments.h"
#include "measure/experiments/idle_cycle.h"
#include "measure/instruments/chase.h"
#include "measure/session/probe_testing.h"
#include "tests/support/machines.h"

namespace headrace::experiment_parallelism {

using namespace session;

namespace {

TEST(ParallelismTest, EveryPairOfNodesHasEveryNumberOfChains) {
  Machine machine = test::small_machine();
  machine.nodes[0].cpus = {0};
  std::size_t memories = 0;
  for (Node& node : machine.nodes) {
    node.capacity = 1_GiB;
    memories += node.byte_addressable() ? 1 : 0;
  }
  std::set<std::pair<std::uint64_t, std::uint64_t>> found;
  for (const Point& point : kExperiment.points({machine})) {
    found.emplace(*point.row.number("memory_node"), *point.row.number("chains"));
  }
  EXPECT_EQ(found.size(), memories * kChainCounts.size());
}

TEST(ParallelismTest, PointsOfAMemoryShareItsCycleAndGoOnInIt) {
  Machine machine = Machine::discover().value();
  // A small node, so that its cycle is linked quickly.
  for (Node& node : machine.nodes) node.capacity = 32_MiB;
  BufferPool buffers(machine);
  Random random(1);
  std::size_t expected = 0;
  for (const Point& point : kExperiment.points({machine})) {
    SCOPED_TRACE(point.row.key());
    EXPECT_TRUE(point.row.has_flag("shrunk"));
    EXPECT_EQ(point.setup.name, "cycle");
    const auto sample = sample_of(point, buffers, random);
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_GT(sample->value, 0);
    for (const std::string_view detail : kExperiment.details) {
      EXPECT_GT(sample->details.at(std::string(detail)), 0);
    }
    EXPECT_DOUBLE_EQ(sample->details.at("bandwidth"), 64e9 / sample->value);
    const std::uint64_t chains = *point.row.number("chains");
    EXPECT_TRUE(chains > 1 || sample->details.at("speedup") == 1);
    // 2 MiB: 32768 lines, of which a run takes 9216 to warm up and at most a quarter, 8160.
    expected += 8160 + 8160 + (chains == 1 ? 0 : 8160);
    const auto chased = idle_cycle(buffers, random, point.memory, 2_MiB, 0);
    ASSERT_TRUE(chased);
    EXPECT_EQ(index_in_cycle(chased->at), expected % 32768);
    if (machine.nodes.size() > 1 && chains == kChainCounts.back()) break;
  }
}

}  // namespace
}  // namespace headrace::experiment_parallelism
