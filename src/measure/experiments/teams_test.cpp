// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/teams.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "headrace/measure.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/traffic/traffic.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/probe_testing.h"
#include "tests/support/machines.h"

namespace headrace::session {
namespace {

CpuSet cpus_of(const Machine& machine) {
  CpuSet cpus;
  for (const Node& node : machine.nodes) {
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  }
  std::ranges::sort(cpus);
  return cpus;
}

// "machine 96", "socket 48 spread": part, number of CPUs, order.
std::map<std::string, std::size_t> teams_of(const Machine& machine, bool budget,
                                            const ParameterChoices& only = {}) {
  const AsIfUsable all(cpus_of(machine));
  std::map<std::string, std::size_t> found;
  for (const MeasuredTeam& each :
       measured_teams({.machine = machine, .only = only, .here = false, .budget = budget})) {
    std::string name(to_string(each.part));
    name += " " + std::to_string(each.team.cpus.size());
    if (each.order) name += " " + std::string(to_string(*each.order));
    found[name] += 1 + each.stands_for.size();
  }
  return found;
}

TEST(TeamsTest, OfSixteenNodesTheMachineAndASocketForBoth) {
  const Machine machine = Machine::load("xeon-max").value();
  using Found = std::map<std::string, std::size_t>;
  EXPECT_EQ(teams_of(machine, true), (Found{{"machine 96", 1}, {"socket 48", 2}}));
  const ParameterChoices second{{"cpu_node", std::string("4-7")}};
  EXPECT_EQ(teams_of(machine, true, second), (Found{{"machine 96", 1}, {"socket 48", 2}}));
  const Found parts = teams_of(machine, false);
  EXPECT_EQ(parts.at("machine 8 spread"), 1U);
  EXPECT_FALSE(parts.contains("socket 2 close"));
  const Found asked = teams_of(machine, true, {{"order", std::string("close")}});
  EXPECT_EQ(asked.at("socket 2 close"), 1U);
}

// CPUs 0 and 2 are threads of one core.
TEST(TeamsTest, BesideAnObserver_OtherCoresComeFirst) {
  Machine machine;
  machine.caches = {{.level = 1, .size = 32_KiB, .cpus = {0, 2}}};
  EXPECT_EQ(beside(machine, 0, {3, 2, 0, 1}), (std::vector<unsigned>{3, 1}));
  EXPECT_EQ(beside(machine, 1, {0, 1, 2, 3}), (std::vector<unsigned>{0, 2, 3}));
  EXPECT_EQ(beside(machine, 0, {0, 2}), (std::vector<unsigned>{2})) << "there is no other";
  EXPECT_TRUE(beside(machine, 0, {0}).empty());
}

// Threads of traffic, and aggressors, get a last-level cache each while there are any.
TEST(TeamsTest, FewThreadsOfANodeAreSpreadOverItsCaches) {
  Machine machine = test::epyc_384();
  machine.nodes.resize(1);  // 192 CPUs, a socket
  machine.nodes[0].cpus.resize(192);
  std::iota(machine.nodes[0].cpus.begin(), machine.nodes[0].cpus.end(), 0);
  const AsIfUsable all(cpus_of(machine));
  const ParameterChoices four{{"threads", std::uint64_t{4}}};
  const auto caches_of = [&](const Row& row) {
    std::set<std::size_t> caches;
    const CpuSet cpus = parse_cpu_list(row.cpus).value();
    for (const unsigned cpu : cpus) {
      for (std::size_t i = 0; i < machine.caches.size(); ++i) {
        const auto& cache = machine.caches[i];
        if (cache.level == 3 && std::ranges::count(cache.cpus, cpu) > 0) caches.insert(i);
      }
    }
    return caches.size();
  };
  std::size_t seen = 0;
  for (const auto& point :
       experiment_loaded::kExperiment.points({.machine = machine, .only = four, .here = false})) {
    EXPECT_GE(caches_of(point.row), 4U) << point.row.key();
    ++seen;
  }
  for (const auto& point : experiment_interference::kExperiment.points(
           {.machine = machine, .only = {{"aggressors", std::uint64_t{4}}}, .here = false})) {
    if (!point.row.reason.empty()) continue;
    EXPECT_GE(caches_of(point.row), 4U) << point.row.key();
    ++seen;
  }
  EXPECT_GT(seen, 4U);
}

// The nodes of measured sockets, of two sockets with two CPUs each.
std::set<std::string> sockets_of(const Machine& machine, const std::vector<NodeId>& forbidden) {
  const AsIfUsable all(cpus_of(machine));
  std::set<std::string> found;
  for (const MeasuredTeam& each :
       measured_teams({.machine = machine, .here = false, .forbidden = forbidden})) {
    if (each.part == TeamPart::socket) found.insert(list_of(each.team.nodes()));
  }
  return found;
}

TEST(TeamsTest, SocketRepresentsAnother_OnlyWithSimilarUsableMemory) {
  Machine machine = test::machine_of({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, 2);
  using Found = std::set<std::string>;
  EXPECT_EQ(sockets_of(machine, {}), (Found{"0-1"}));
  EXPECT_EQ(sockets_of(machine, {NodeId{0}, NodeId{1}}), (Found{"0-1", "2-3"}));
  machine.nodes.push_back(
      {.id = NodeId{4}, .kind = NodeKind::cxl, .reason = "test", .capacity = 64_GiB, .socket = 1});
  EXPECT_EQ(sockets_of(machine, {}), (Found{"0-1", "2-3"})) << "CXL memory is near one of them";
}

// A node of four CPUs behind two caches, with one node as on this host.
Machine two_caches() {
  Machine machine = Machine::discover().value();
  machine.nodes.resize(1);
  machine.nodes.front().cpus = {0, 1, 2, 3};
  machine.caches = {{3, 1_MiB, {0, 1}}, {3, 1_MiB, {2, 3}}};
  return machine;
}

TEST(TeamsTest, ACacheOfANodeIsMeasuredOnceForAllLikeIt) {
  const Machine machine = two_caches();
  EXPECT_EQ(teams_of(machine, true), (std::map<std::string, std::size_t>{{"cluster 2", 2}}));
  Machine one = machine;
  one.caches.clear();
  EXPECT_TRUE(teams_of(one, true).empty()) << "the node's own rows are these";
}

TEST(TeamsTest, TheThreadsOfACoreWorkTogether) {
  Machine machine = two_caches();
  machine.caches.push_back({1, 32_KiB, {0, 1}});
  machine.caches.push_back({1, 32_KiB, {2, 3}});
  // The two CPUs of a cache are one core.
  EXPECT_EQ(teams_of(machine, true), (std::map<std::string, std::size_t>{{"core 2", 2}}));
  const AsIfUsable all(cpus_of(machine));
  EXPECT_EQ(measured_teams({.machine = machine}).front().stands_for,
            (std::vector<std::string>{"cpu_node=0"}));
}

// As a laptop, a virtual machine or a container.
TEST(TeamsTest, MachineOfOneNode_HasARowOnlyOnRequest) {
  Machine machine = two_caches();
  machine.caches.clear();
  const AsIfUsable all(cpus_of(machine));
  for (const Experiment* const experiment :
       {&experiment_bandwidth::kExperiment, &experiment_stream::kExperiment}) {
    std::size_t named = 0;
    for (const Point& point : experiment->points({.machine = machine})) {
      EXPECT_EQ(point.row.parameter("on"), nullptr) << point.row.key();
      const bool whole = *point.row.number("threads") == 4 && !point.row.parameter("pattern");
      EXPECT_EQ(point.row.stands_for.size(), whole ? 1U : 0U) << point.row.key();
      for (const std::string& other : point.row.stands_for) {
        EXPECT_EQ(other, "on=machine placed=near");
        ++named;
      }
    }
    EXPECT_GT(named, 4U);
    for (const char* const part : {"machine", "socket", "cluster"}) {
      const Scope scope{.machine = machine, .only = {{"on", part}, {"placed", "near"}}};
      auto points = experiment->points(scope);
      std::erase_if(points, [&](const Point& point) {
        return !scope.wants(point.row, experiment->parameters);
      });
      EXPECT_EQ(points.size(), experiment->name == "stream" ? 8U : mixes().size()) << part;
      for (const Point& point : points) EXPECT_EQ(point.row.cpus, "0-3") << point.row.key();
    }
  }
}

TEST(TeamsTest, AMachineOfOneCpuIsATeamWhenAskedFor) {
  Machine machine = two_caches();
  machine.caches.clear();
  machine.nodes.front().cpus = {0};
  using Found = std::map<std::string, std::size_t>;
  EXPECT_EQ(teams_of(machine, true), Found{});
  EXPECT_EQ(teams_of(machine, true, {{"on", "machine"}}), (Found{{"machine 1", 1}}));
  EXPECT_FALSE(teams_of(machine, true, {{"placed", "near"}}).empty());
}

// Two sockets with one node each: the machine has rows of its own; a socket has those of its node.
TEST(TeamsTest, ASocketOfOneNodeIsThatNode) {
  const Machine machine = test::machine_of({{0, 1}, {2, 3}}, 1);
  const AsIfUsable all(cpus_of(machine));
  std::set<std::string> named;
  for (const Point& point : experiment_bandwidth::kExperiment.points({.machine = machine})) {
    named.insert(point.row.stands_for.begin(), point.row.stands_for.end());
    if (point.row.stands_for.empty()) continue;
    EXPECT_EQ(*point.row.number("cpu_node"), *point.row.number("memory_node"));
  }
  EXPECT_EQ(named, (std::set<std::string>{"on=socket placed=near"}));
  EXPECT_EQ(teams_of(machine, true, {{"on", "socket"}}),
            (std::map<std::string, std::size_t>{{"socket 2", 2}}));
}

std::vector<Point> listed(const Experiment& experiment, const Machine& machine) {
  const AsIfUsable all(cpus_of(machine));
  return experiment.points({.machine = machine});
}

// As without a shared cache, on a virtual machine or many Arm servers.
TEST(TeamsTest, CachesOfOneCpuAreNoTeams) {
  Machine machine = test::machine_of({{0, 1}, {2, 3}}, 1);
  for (unsigned cpu = 0; cpu < 4; ++cpu) {
    machine.caches.push_back({.level = 2, .size = 1_MiB, .cpus = {cpu}});
  }
  EXPECT_EQ(teams_of(machine, true), (std::map<std::string, std::size_t>{{"machine 4", 1}}));
}

TEST(TeamsTest, ThreadsOfANodeAreSpreadOverItsCaches) {
  const Machine machine = two_caches();
  std::set<std::string> pairs;
  for (const Point& point : listed(experiment_bandwidth::kExperiment, machine)) {
    if (point.row.parameter("on") == nullptr && *point.row.number("threads") == 2) {
      pairs.insert(point.row.cpus);
    }
    EXPECT_FALSE(point.row.cpus.empty()) << point.row.key();
  }
  EXPECT_EQ(pairs, (std::set<std::string>{"0,2"}));
}

TEST(TeamsTest, ACpuOfTwoNodesIsOfBoth) {
  Machine machine = two_caches();
  machine.caches.clear();
  Node other = machine.nodes.front();
  other.id = NodeId{raw(other.id) + 1};
  machine.nodes.front().cpus = {0};
  machine.nodes.push_back(other);
  const AsIfUsable all({0, 1, 2, 3});
  EXPECT_EQ(spread_order(machine, machine.nodes.back()).size(), 4U);
}

TEST(TeamsTest, ATeamWalksOverMemoryOfItsOwn) {
  const Machine machine = two_caches();
  BufferPool buffers(machine);
  Random random(1);
  std::size_t measured = 0;
  for (const Point& point : listed(experiment_bandwidth::kExperiment, machine)) {
    if (point.row.word("on") != "cluster" || point.row.word("mix") != "read") continue;
    EXPECT_EQ(point.row.key(),
              "bandwidth cpu_node=0 memory_node=0 mix=read threads=2 on=cluster placed=near");
    EXPECT_EQ(point.row.cpus, "0-1");
    const auto sample = sample_of(point, buffers, random);
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_GT(sample->value, 0);
    ++measured;
  }
  EXPECT_EQ(measured, 1U);
}

// Two sockets of one node, each with four threads on two cores.
Machine with_siblings() {
  Machine machine = test::machine_of({{0, 1, 2, 3}, {4, 5, 6, 7}}, 1);
  for (const unsigned id : {0U, 1U}) {
    machine.nodes[id].distances = {{NodeId{id}, 10}, {NodeId{1 - id}, 21}};
    const CpuSet& cpus = machine.nodes[id].cpus;
    machine.caches.push_back({.level = 1, .size = 32_KiB, .cpus = {cpus[0], cpus[2]}});
    machine.caches.push_back({.level = 1, .size = 32_KiB, .cpus = {cpus[1], cpus[3]}});
    machine.caches.push_back({.level = 3, .size = 32_MiB, .cpus = cpus});
  }
  return machine;
}

TEST(TeamsTest, AllThreadsOfTheCoresHaveFarAndInterleavedMemoryToo) {
  const Machine machine = with_siblings();
  const AsIfUsable all(cpus_of(machine));
  const auto found = [&](const Experiment& experiment, const char* word, const char* is,
                         std::string_view on) {
    std::set<std::string> places;
    const Scope scope{.machine = machine, .only = {{"on", std::string(on)}}};
    for (const Point& point : experiment.points(scope)) {
      if (point.row.word("on") != on || point.row.word(word) != is) continue;
      places.insert(std::string(point.row.word("placed")) + " " + point.row.cpus);
    }
    return places;
  };
  const std::set<std::string> whole{"near 0-1,4-5",   "near 0-7", "interleave 0-1,4-5",
                                    "interleave 0-7", "far 0-7",  "far 0-1,4-5"};
  const std::set<std::string> core{"near 0,2", "interleave 0,2", "far 0,2"};
  const Experiment& bandwidth = experiment_bandwidth::kExperiment;
  const Experiment& stream = experiment_stream::kExperiment;
  EXPECT_EQ(found(bandwidth, "mix", "read", "machine"), whole);
  EXPECT_EQ(found(bandwidth, "mix", "read", "core"), core);
  EXPECT_EQ(found(stream, "kernel", "triad", "machine"), whole);
  EXPECT_EQ(found(stream, "kernel", "triad", "core"), core);
}

// The parts of a node's threads are in its own buffer and do not overlap.
TEST(TeamsTest, PartsAreApart) {
  const Machine machine = two_caches();
  const NodeId home = machine.nodes.front().id;
  BufferPool buffers(machine);
  const auto parts =
      team_parts(buffers, {TeamMemory::near, {home, home, home}, {home}}, 3, 0, 9_KiB);
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*parts)[i].size(), 8192U);
    if (i > 0) {
      EXPECT_GE((*parts)[i].data(), (*parts)[i - 1].data() + 8192);
    }
  }
  EXPECT_EQ(team_parts(buffers, {TeamMemory::near, {home}, {home}}, 1, 0, 9_B).error().code,
            ErrorCode::exhausted);
}

TEST(TeamsTest, PartsThatANodeHasNoRoomForShrinkForAll) {
  Machine machine = two_caches();
  machine.nodes.front().capacity = 64_MiB;  // a sixteenth of it is 4 MiB
  const NodeId home = machine.nodes.front().id;
  Row row;
  const TeamNodes nodes{TeamMemory::near, {home, home}, {home}};
  EXPECT_EQ(fit_team(row, {.machine = machine}, nodes, 2, 2_MiB), 2_MiB);
  EXPECT_FALSE(row.has_flag("shrunk"));
  EXPECT_EQ(fit_team(row, {.machine = machine}, nodes, 2, 1_GiB), 4_MiB);
  EXPECT_TRUE(row.has_flag("shrunk"));
}

TEST(TeamsTest, InterleavedPagesTakeAnEqualShareOfEachNodeWhateverTheThreads) {
  // A sixteenth of each node is 64 MiB.
  const Machine machine = test::machine_of(std::vector<CpuSet>(16), 0, 1_GiB);
  TeamNodes nodes{.how = TeamMemory::interleave};
  for (const Node& node : machine.nodes) nodes.all.push_back(node.id);
  Row row;
  EXPECT_EQ(fit_team(row, {.machine = machine}, nodes, 2, 1_GiB), 1_GiB);
  EXPECT_FALSE(row.has_flag("shrunk"));
  EXPECT_EQ(fit_team(row, {.machine = machine}, nodes, 2, 4_GiB), 1_GiB);
  EXPECT_TRUE(row.has_flag("shrunk"));
}

TEST(TeamsTest, ALimitOfAllMemoryCountsForAllPartsTogether) {
  const Machine machine = test::machine_of(std::vector<CpuSet>(8), 0, 2_GiB);
  TeamNodes nodes{.how = TeamMemory::near};
  for (const Node& node : machine.nodes) nodes.all.push_back(node.id);
  nodes.of_cpu = nodes.all;
  Row row;
  EXPECT_EQ(fit_team(row, {.machine = machine}, nodes, 8, 4_GiB), 1_GiB) << "128 MiB of each";
  EXPECT_EQ(fit_team(row, {.machine = machine, .memory_limit = 2_GiB}, nodes, 8, 4_GiB), 128_MiB);
  EXPECT_TRUE(row.has_flag("shrunk"));
}

}  // namespace
}  // namespace headrace::session
