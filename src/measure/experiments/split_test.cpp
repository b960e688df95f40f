// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "measure/experiments/experiments.h"
#include "measure/instruments/traffic/traffic_race.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/probe_testing.h"
#include "memory/memory.h"
#include "tests/support/machines.h"

namespace headrace::experiment_split {

using namespace session;

namespace {

TEST(SplitTest, TheNearestMemoryOfEachKindIsSplitWithByEveryRatio) {
  Machine machine = test::small_machine();
  for (Node& node : machine.nodes) node.capacity = 1_GiB;
  std::set<std::string> ratios;
  for (const Point& point : kExperiment.points({machine})) {
    EXPECT_EQ(point.row.reason, "");
    EXPECT_EQ(*point.row.number("memory_node"), raw(test::kDram));
    EXPECT_EQ(*point.row.number("other_memory_node"), raw(test::kHbm));
    ratios.insert(std::string(point.row.word("ratio")));
  }
  EXPECT_EQ(ratios, (std::set<std::string>{"1:0", "8:1", "4:1", "3:1", "2:1", "1:1", "1:2", "1:3",
                                           "1:4", "1:8", "0:1"}));
}

TEST(SplitTest, AnyTwoMemoriesThatAreNamed) {
  Machine machine = *Machine::load("xeon-max");
  CpuSet cpus;
  for (const Node& node : machine.nodes)
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  const AsIfUsable as_if(cpus);
  const ParameterChoices only{{"cpu_node", std::uint64_t{0}},
                              {"memory_node", std::uint64_t{3}},
                              {"other_memory_node", std::uint64_t{12}}};
  const auto points = kExperiment.points({.machine = machine, .only = only, .here = false});
  EXPECT_EQ(points.size(), 11U);
  for (const Point& point : points) {
    EXPECT_EQ(*point.row.number("cpu_node"), 0U);
    EXPECT_EQ(*point.row.number("memory_node"), 3U);
    EXPECT_EQ(*point.row.number("other_memory_node"), 12U);
  }
}

TEST(SplitTest, AnotherMemoryOfTheSameKindIsTheNearest) {
  Machine machine = test::small_machine();
  const Node first = machine.nodes.front();
  machine.nodes.clear();
  CpuSet cpus;
  for (unsigned id = 0; id < 4; ++id) {  // two sockets of two nodes
    Node node = first;
    node.id = NodeId{id};
    node.capacity = 1_GiB;
    node.cpus = {id};
    node.socket = id / 2;
    node.distances.clear();
    for (unsigned to = 0; to < 4; ++to) {
      node.distances[NodeId{to}] = to == id ? 10 : to / 2 == id / 2 ? 12 : 32;
    }
    cpus.push_back(id);
    machine.nodes.push_back(node);
  }
  const AsIfUsable as_if(cpus);
  std::set<std::pair<std::uint64_t, std::uint64_t>> pairs;
  for (const Point& point : kExperiment.points({.machine = machine, .here = false})) {
    EXPECT_EQ(*point.row.number("memory_node"), *point.row.number("cpu_node"));
    pairs.emplace(*point.row.number("cpu_node"), *point.row.number("other_memory_node"));
  }
  EXPECT_EQ(pairs,
            (std::set<std::pair<std::uint64_t, std::uint64_t>>{{0, 1}, {1, 0}, {2, 3}, {3, 2}}));
}

TEST(SplitTest, OneMemorySaysWhyItHasNoRow) {
  Machine machine = test::small_machine();
  machine.nodes.resize(1);
  const auto points = kExperiment.points({machine});
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].row.reason, "one memory node has no other to split reads with");
  EXPECT_TRUE(points[0].row.has_flag("absent"));
}

// Two names for this host's memory: the reads are real, the separation is not.
TEST(SplitTest, APointReadsBothMemoriesAndSaysTheirShare) {
  const Machine here = Machine::discover().value();
  Machine machine = test::small_machine();
  machine.nodes[0] = here.nodes[0];
  machine.nodes[0].capacity = 64_MiB;
  machine.nodes[1] = machine.nodes[0];
  machine.nodes[1].cpus.clear();
  BufferPool buffers(here);
  Random random(1);
  std::size_t measured = 0;
  const Scope scope{machine};
  for (const Point& point : kExperiment.points(scope)) {
    if (point.row.word("ratio") != "3:1" && point.row.word("ratio") != "0:1") continue;
    EXPECT_TRUE(point.row.has_flag("shrunk"));
    const auto sample = sample_of(point, buffers, random);
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_GT(sample->value, 1e6);
    const CpuSet cpus = usable_cpus(machine.find(test::kDram));
    const std::string ground = ground_of(machine, machine.nodes[0], machine.nodes[0]);
    // The race was run already, so the areas are not used.
    const std::vector<TrafficArea> none(cpus.size());
    const Mix& mix = *find_mix("read");
    EXPECT_EQ(point.races, std::vector{race_of(mix, cpus.size(), ground)});
    EXPECT_EQ(sample->words.at("kernel"),
              TrafficKernel(mix, *scope.races->fastest(mix, cpus, ground, none)).name());
    EXPECT_NEAR(sample->details.at("share"), point.row.word("ratio") == "3:1" ? 0.25 : 1, 1e-9);
    ++measured;
  }
  EXPECT_EQ(measured, 2U);
}

// Each of eight streams has two pages of a reader's sixteen.
TEST(SplitTest, AReaderHasSixteenPagesOrThePointSaysThatANodeIsTooSmall) {
  const Machine here = Machine::discover().value();
  Machine machine = test::small_machine();
  machine.nodes[0] = here.nodes[0];
  const CpuSet usable = usable_cpus(&here.nodes[0]);
  if (usable.size() < 2) GTEST_SKIP() << "one CPU: a buffer has no less than 64 KiB";
  machine.nodes[0].cpus = {usable[0], usable[1]};
  BufferPool buffers(here);
  Random random(1);
  const auto races = std::make_shared<Races>();
  const auto prepared = [&](Bytes capacity) {
    machine.nodes[0].capacity = capacity;
    machine.nodes[1] = machine.nodes[0];
    machine.nodes[1].cpus.clear();
    return kExperiment.points({.machine = machine, .races = races})
        .front()
        .prepare(buffers, random);
  };
  const Bytes enough = base_page() * 16 * 2 * 16;  // a buffer gets a sixteenth of the node
  const auto probe = prepared(enough);
  ASSERT_TRUE(probe) << probe.error().message;
  EXPECT_TRUE((*probe)->sample());
  const auto refused = prepared(enough / 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_EQ(refused.error().message, "a node is too small for 2 threads");
}

}  // namespace
}  // namespace headrace::experiment_split
