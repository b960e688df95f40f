// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "measure/experiments/experiments.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_core_to_core {

using namespace session;

namespace {

// Two sockets of two nodes, each of two caches of two cores of two threads: 32 CPUs.
struct Large {
  Machine machine{.name = "large"};
  CpuSet cpus;

  explicit Large(unsigned cpus_per_node = 8) {
    for (unsigned id = 0; id < 4; ++id) {
      Node node{.id = NodeId{id}, .kind = NodeKind::dram, .capacity = 1_GiB, .socket = id / 2};
      for (unsigned i = 0; i < cpus_per_node; ++i) node.cpus.push_back(id * cpus_per_node + i);
      cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
      machine.nodes.push_back(node);
    }
    for (unsigned cpu = 0; cpu < cpus.size(); cpu += 2) {
      machine.caches.push_back({.level = 1, .size = 32_KiB, .cpus = {cpu, cpu + 1}});
      if (cpu % 4 != 0) continue;
      machine.caches.push_back(
          {.level = 3, .size = 32_MiB, .cpus = {cpu, cpu + 1, cpu + 2, cpu + 3}});
    }
  }
  std::vector<Point> points(const ParameterChoices& only, bool budget) const {
    const AsIfUsable as_if(cpus);
    return kExperiment.points({.machine = machine, .only = only, .here = false, .budget = budget});
  }
};

TEST(CoreToCoreTest, SimilarPairs_OneIsMeasuredWithTheirNumber) {
  const Large large;
  std::map<std::string, double> pairs;
  for (const Point& point : large.points({}, true)) {
    EXPECT_EQ(point.row.reason, "");
    EXPECT_LT(*point.row.number("cpu"), *point.row.number("other_cpu"));
    EXPECT_TRUE(
        pairs.emplace(std::string(point.row.word("apart")), point.row.details.at("pairs")).second);
  }
  const std::map<std::string, double> expected{
      {"core", 16}, {"cache", 32}, {"node", 64}, {"socket", 128}, {"far", 256}};
  EXPECT_EQ(pairs, expected);
}

TEST(CoreToCoreTest, RepresentativePair_AvoidsCpu0) {
  Large large;
  for (const Point& point : large.points({}, true)) {
    EXPECT_GE(*point.row.number("cpu"), 2U) << point.row.key() << ": 0 and 1 are of one core";
  }
  large.cpus = {0, 2};
  const auto points = large.points({}, true);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(*points[0].row.number("cpu"), 0U);
}

TEST(CoreToCoreTest, NodesOfAnotherDistanceAreAnotherPair) {
  Large large;
  for (Node& node : large.machine.nodes) {
    for (unsigned id = 0; id < 4; ++id) {
      const bool together = raw(node.id) / 2 == id / 2;
      node.distances[NodeId{id}] = raw(node.id) == id ? 10 : together ? 12 : 20 + raw(node.id) + id;
    }
  }
  std::multiset<std::string> apart;
  for (const Point& point : large.points({}, true))
    apart.insert(std::string(point.row.word("apart")));
  EXPECT_EQ(apart.count("socket"), 1U);
  EXPECT_EQ(apart.count("far"), 3U) << "22, 23 and 24";
}

TEST(CoreToCoreTest, WithoutABudgetTheMatrixIsWholeUpToALimitThatIsSaid) {
  EXPECT_EQ(Large().points({}, false).size(), 32U * 31 / 2);
  const auto points = Large(96).points({}, false);
  ASSERT_EQ(points.size(), 64U * 63 / 2 + 5 + 1) << "the matrix, one of each distance, the limit";
  EXPECT_NE(points.back().row.reason.find("64 of 384 CPUs"), std::string::npos);
  std::set<std::uint64_t> cpus;
  for (const Point& point : points) {
    if (point.row.reason.empty()) cpus.insert(*point.row.number("cpu"));
  }
  EXPECT_GE(*cpus.rbegin(), 288U) << "the last node has its part";
}

// Every sixth of 384 CPUs lacks both the other thread of its core and a CPU that shares its cache.
TEST(CoreToCoreTest, TheMatrixOfALargeMachineHasEveryPairThatABudgetMeasures) {
  const Large large(96);
  std::set<std::string> keys;
  for (const Point& point : large.points({}, false)) {
    EXPECT_TRUE(keys.insert(point.row.key()).second) << point.row.key();
  }
  const auto some = large.points({}, true);
  EXPECT_EQ(some.size(), 5U);
  for (const Point& point : some) EXPECT_TRUE(keys.contains(point.row.key())) << point.row.key();
}

TEST(CoreToCoreTest, RequestedCpu_HasAllItsPairsMeasured) {
  std::size_t found = 0;
  for (const Point& point : Large().points({{"cpu", std::uint64_t{5}}}, true)) {
    EXPECT_EQ(*point.row.number("cpu"), 5U);
    EXPECT_EQ(point.memory.node, NodeId{0}) << "the line lies near the first";
    ++found;
  }
  EXPECT_EQ(found, 31U);
}

TEST(CoreToCoreTest, OneCpuSaysWhyItHasNoRow) {
  Large large;
  large.cpus = {0};
  const auto points = large.points({}, true);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].row.reason, "one CPU has no other to hand a line to");
  EXPECT_TRUE(points[0].row.has_flag("absent"));
}

TEST(CoreToCoreTest, APointOfThisHostGivesHalfARoundTrip) {
  const Machine machine = Machine::discover().value();
  const auto points = kExperiment.points({machine});
  if (!points.front().row.reason.empty()) GTEST_SKIP() << points.front().row.reason;
  BufferPool buffers(machine);
  Random random(1);
  const auto probe = points.front().prepare(buffers, random);
  ASSERT_TRUE(probe) << probe.error().message;
  const auto sample = (*probe)->sample();
  if (!sample && sample.error().code == ErrorCode::timed_out) GTEST_SKIP() << "a busy machine";
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_GT(sample->value, 1) << "faster than light through two cores";
  EXPECT_DOUBLE_EQ(sample->details.at("round_trip"), 2 * sample->value);
}

}  // namespace
}  // namespace headrace::experiment_core_to_core
