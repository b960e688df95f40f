// SPDX-License-Identifier: Apache-2.0
#include "place/team.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "headrace/placement.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

CpuSet first_cpus(unsigned count) {
  CpuSet cpus(count);
  std::iota(cpus.begin(), cpus.end(), 0U);
  return cpus;
}

Machine sixteen_nodes() { return Machine::load("xeon-max").value(); }
CpuSet all_of(const Machine& machine) {
  CpuSet cpus;
  for (const Node& node : machine.nodes) {
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  }
  std::ranges::sort(cpus);
  return cpus;
}

// One socket of an EPYC: a node, and two caches of four cores, whose second threads have numbers
// higher by 8.
Machine epyc() {
  Machine machine;
  machine.nodes = {{.id = NodeId{0},
                    .kind = NodeKind::dram,
                    .reason = "test",
                    .capacity = 1_GiB,
                    .cpus = first_cpus(16)}};
  for (const unsigned half : {0U, 4U}) {
    CpuSet shared;
    for (const unsigned base : {half, half + 8}) {
      for (unsigned i = 0; i < 4; ++i) shared.push_back(base + i);
    }
    machine.caches.push_back({3, 32_MiB, shared});
  }
  for (unsigned core = 0; core < 8; ++core) machine.caches.push_back({1, 32_KiB, {core, core + 8}});
  return machine;
}

std::vector<unsigned> cpus_of(const Machine& machine, const TeamChoice& choice) {
  const auto team = choose_team(machine, all_of(machine), choice);
  EXPECT_TRUE(team) << team.error().message;
  return team ? team->cpus : std::vector<unsigned>{};
}

using Cpus = std::vector<unsigned>;

TEST(TeamTest, ACpuThatTwoNodesNameIsInATeamOnce) {
  Machine machine = test::epyc_384();
  machine.nodes[1].cpus = machine.nodes[0].cpus;
  EXPECT_EQ(cpus_of(machine, {.siblings = true}).size(), 384U - 16U);
  EXPECT_EQ(cpus_of(machine, {.part = TeamPart::node, .siblings = true}).size(), 16U);
}

TEST(TeamTest, CoresOfTwoCachesCloseAndSpread) {
  constexpr TeamPart kNode = TeamPart::node;
  const Machine machine = epyc();
  EXPECT_EQ(cpus_of(machine, {.part = kNode}), (Cpus{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(cpus_of(machine, {.part = kNode, .order = TeamOrder::spread}),
            (Cpus{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(cpus_of(machine, {.part = kNode, .siblings = true, .count = 4}), (Cpus{0, 8, 1, 9}));
  EXPECT_EQ(cpus_of(machine, {.order = TeamOrder::spread, .siblings = true}),
            (Cpus{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}));
  EXPECT_EQ(cpus_of(machine, {.part = TeamPart::cluster, .cpu = 5}), (Cpus{4, 5, 6, 7}));
  EXPECT_EQ(cpus_of(machine, {.part = TeamPart::core, .cpu = 13, .siblings = true}), (Cpus{5, 13}));
  EXPECT_EQ(cpus_of(machine, {.part = TeamPart::core}), (Cpus{0}));
}

TEST(TeamTest, SpreadOverSocketsThenNodes) {
  const Machine machine = sixteen_nodes();
  const auto spread = cpus_of(machine, {.order = TeamOrder::spread, .count = 9});
  std::vector<std::uint32_t> nodes;
  for (const unsigned cpu : spread) nodes.push_back(raw(machine.node_of_cpu(cpu)->id));
  EXPECT_EQ(nodes, (std::vector<std::uint32_t>{0, 4, 1, 5, 2, 6, 3, 7, 0}));
  EXPECT_EQ(cpus_of(machine, {.part = TeamPart::socket, .cpu = machine.nodes[5].cpus[0]}).size(),
            48U);
  // The caches of this preset are unknown: then a node is the smallest part.
  EXPECT_EQ(cpus_of(machine, {.part = TeamPart::cluster}),
            cpus_of(machine, {.part = TeamPart::node}));
}

TEST(TeamTest, EightThreadsOf384CpusHaveEightCachesOrOne) {
  const Machine machine = test::epyc_384();
  const auto caches = [&](TeamOrder order) {
    std::set<unsigned> found;
    for (const unsigned cpu : cpus_of(machine, {.order = order, .count = 8})) {
      found.insert(cpu / 16);
    }
    return found;
  };
  EXPECT_EQ(caches(TeamOrder::close), (std::set<unsigned>{0}));
  EXPECT_EQ(caches(TeamOrder::spread), (std::set<unsigned>{0, 1, 2, 3, 12, 13, 14, 15}));
  EXPECT_EQ(cpus_of(machine, {}).size(), 384U);
  EXPECT_EQ(cpus_of(machine, {.part = TeamPart::socket}).size(), 192U);
}

// Every team has each CPU once, and all CPUs that are allowed and requested.
TEST(TeamTest, EveryTeamIsWholeInEitherOrder) {
  for (const Machine& machine :
       {epyc(), sixteen_nodes(), test::epyc_384(), test::small_machine()}) {
    CpuSet allowed = all_of(machine);
    std::erase_if(allowed, [](unsigned cpu) { return cpu % 5 == 3; });
    for (const TeamPart part :
         {TeamPart::core, TeamPart::cluster, TeamPart::node, TeamPart::socket, TeamPart::machine}) {
      for (const bool siblings : {false, true}) {
        TeamChoice choice{.part = part, .cpu = allowed.back(), .siblings = siblings};
        const auto close = choose_team(machine, allowed, choice);
        choice.order = TeamOrder::spread;
        const auto spread = choose_team(machine, allowed, choice);
        ASSERT_TRUE(close && spread);
        const CpuSet set = close->sorted();
        EXPECT_EQ(set, spread->sorted());
        EXPECT_EQ(std::set<unsigned>(set.begin(), set.end()).size(), set.size());
        EXPECT_TRUE(std::ranges::includes(allowed, set));
        if (part == TeamPart::machine && siblings) {
          EXPECT_EQ(set, allowed);
        }
        for (std::size_t i = 0; i < close->cpus.size(); ++i) {
          EXPECT_EQ(close->homes[i], machine.node_of_cpu(close->cpus[i])->id);
        }
      }
    }
  }
}

TEST(TeamTest, MemoryNearInterleavedAndFar) {
  const Machine machine = sixteen_nodes();
  const auto nodes = [&](const Team& team, NodeKind kind, TeamMemory memory) {
    std::vector<std::uint32_t> found;
    const auto chosen = memory_of(machine, team, kind, memory);
    EXPECT_TRUE(chosen) << chosen.error().message;
    for (const NodeId id : chosen.value_or(std::vector<NodeId>{})) found.push_back(raw(id));
    return found;
  };
  const Team team =
      *choose_team(machine, all_of(machine), {.order = TeamOrder::spread, .count = 8});
  using Nodes = std::vector<std::uint32_t>;
  EXPECT_EQ(nodes(team, NodeKind::hbm, TeamMemory::near), (Nodes{8, 12, 9, 13, 10, 14, 11, 15}));
  EXPECT_EQ(nodes(team, NodeKind::dram, TeamMemory::near), (Nodes{0, 4, 1, 5, 2, 6, 3, 7}));
  // Across the link, and each tile another node.
  EXPECT_EQ(nodes(team, NodeKind::hbm, TeamMemory::far), (Nodes{12, 8, 13, 9, 14, 10, 15, 11}));
  EXPECT_EQ(nodes(team, NodeKind::dram, TeamMemory::far), (Nodes{4, 0, 5, 1, 6, 2, 7, 3}));
  const auto all = nodes(team, NodeKind::hbm, TeamMemory::interleave);
  EXPECT_EQ(std::set<std::uint32_t>(all.begin(), all.end()).size(), 8U);
  EXPECT_EQ(memory_of(machine, team, NodeKind::cxl, TeamMemory::near).error().code,
            ErrorCode::absent);
  const Machine small = test::small_machine();
  const Team two = *choose_team(small, {0, 1}, {});
  EXPECT_EQ(memory_of(small, two, NodeKind::hbm, TeamMemory::far).error().code, ErrorCode::absent);
  EXPECT_EQ(memory_of(small, two, NodeKind::hbm, TeamMemory::near)->front(), test::kHbm);
}

// Two CXL devices at a socket: its CPUs use them in turn.
TEST(TeamTest, EquallyNearNodesAreTakenInTurn) {
  Machine machine;
  machine.nodes = {
      {.id = NodeId{0}, .kind = NodeKind::dram, .capacity = 1_GiB, .cpus = {0, 1, 2}, .socket = 0},
      {.id = NodeId{1}, .kind = NodeKind::cxl, .capacity = 1_GiB, .socket = 0},
      {.id = NodeId{2}, .kind = NodeKind::cxl, .capacity = 1_GiB, .socket = 0}};
  const Team team = *choose_team(machine, {0, 1, 2}, {});
  EXPECT_EQ(*memory_of(machine, team, NodeKind::cxl, TeamMemory::near),
            (std::vector{NodeId{1}, NodeId{2}, NodeId{1}}));
}

TEST(TeamTest, MissingCpusAndMemory_AreErrors) {
  const Machine machine = epyc();
  const auto code = [&](const CpuSet& allowed, const TeamChoice& choice) {
    const auto team = choose_team(machine, allowed, choice);
    return team ? std::optional<ErrorCode>() : team.error().code;
  };
  EXPECT_EQ(code({}, {}), ErrorCode::absent);
  EXPECT_EQ(code({99}, {}), ErrorCode::absent);
  EXPECT_EQ(code({0, 1}, {.cpu = 2}), ErrorCode::absent);
  EXPECT_EQ(code({0, 1}, {.count = 3}), ErrorCode::invalid);
  EXPECT_EQ(code({0, 1}, {.count = 0}), ErrorCode::invalid);
  EXPECT_EQ(code({0, 8}, {.count = 2}), ErrorCode::invalid) << "one core";
  EXPECT_EQ(code({0, 8}, {.siblings = true, .count = 2}), std::nullopt);
  EXPECT_EQ(to_string(TeamPart::cluster), "cluster");
}

}  // namespace
}  // namespace headrace
