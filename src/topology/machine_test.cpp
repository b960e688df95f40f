// SPDX-License-Identifier: Apache-2.0
#include "headrace/machine.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/machines.h"
#include "topology/topology.h"

namespace headrace {
namespace {

using test::kCpuA;
using test::kDisk;
using test::kDram;
using test::kHbm;
using test::small_machine;

TEST(MachineTest, FindsNodesAndEnginesById) {
  const Machine machine = small_machine();
  ASSERT_NE(machine.find(kHbm), nullptr);
  EXPECT_EQ(machine.find(kHbm)->kind, NodeKind::hbm);
  EXPECT_EQ(machine.find(NodeId{3}), nullptr);
  ASSERT_NE(machine.find(kCpuA), nullptr);
  EXPECT_EQ(machine.find(kCpuA)->name, "cpu0");
  EXPECT_EQ(machine.find(EngineId{99}), nullptr);
}

TEST(MachineTest, AMissingNodeIsAnErrorThatListsTheOthers) {
  const auto node = small_machine().node(NodeId{3});
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, ErrorCode::absent);
  EXPECT_EQ(node.error().message, "no node 3 on small; its nodes are 0, 8, 1000");
}

TEST(MachineTest, NodesOfAKindComeAscending) {
  Machine machine = small_machine();
  machine.nodes.insert(machine.nodes.begin(), {.id = NodeId{9}, .kind = NodeKind::hbm});
  const auto found = machine.of_kind(NodeKind::hbm);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]->id, kHbm);
  EXPECT_EQ(found[1]->id, NodeId{9});
  EXPECT_TRUE(machine.of_kind(NodeKind::gpu).empty());
}

TEST(MachineTest, FindsTheNodeOfACpu) {
  const Machine machine = small_machine();
  ASSERT_NE(machine.node_of_cpu(1), nullptr);
  EXPECT_EQ(machine.node_of_cpu(1)->id, kDram);
  EXPECT_EQ(machine.node_of_cpu(2), nullptr);
}

TEST(MachineTest, FindsTheRateOfExactlyThisEngineAndDirection) {
  Machine machine = small_machine();
  machine.copy_rates = {{.engine = kCpuA, .from = kDram, .to = kHbm, .bandwidth = {5e9}}};
  ASSERT_NE(machine.rate(kCpuA, kDram, kHbm), nullptr);
  EXPECT_EQ(machine.rate(kCpuA, kHbm, kDram), nullptr);
  EXPECT_EQ(machine.rate(EngineId{1}, kDram, kHbm), nullptr);
}

TEST(MachineTest, TheLastLevelCacheIsTheLargestLevelOfThatCpu) {
  Machine machine = small_machine();
  EXPECT_EQ(last_level_cache(machine, 0), nullptr);
  machine.caches = {{1, 32_KiB, {0}}, {3, 32_MiB, {0, 1}}, {2, 1_MiB, {0}}, {2, 1_MiB, {1}}};
  EXPECT_EQ(last_level_cache(machine, 0)->size, 32_MiB);
  EXPECT_EQ(last_level_cache(machine, 7), nullptr);
}

TEST(MachineTest, WhatCanCopyWhere) {
  const Node dram{.id = NodeId{0}, .kind = NodeKind::dram};
  const Node cxl{.id = NodeId{1}, .kind = NodeKind::cxl};
  const Node disk{.id = NodeId{1000}, .kind = NodeKind::storage};
  const Node other_disk{.id = NodeId{1001}, .kind = NodeKind::storage};
  const Node gpu{.id = NodeId{2000}, .kind = NodeKind::gpu};
  const Node other_gpu{.id = NodeId{2001}, .kind = NodeKind::gpu};
  const std::vector<const Node*> nodes = {&dram, &cxl, &disk, &other_disk, &gpu, &other_gpu};
  struct Ability {
    EngineKind kind;
    NodeId home;
    std::set<std::pair<int, int>> can;  // indices into nodes
  };
  const std::set<std::pair<int, int>> memory = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  const std::vector<Ability> cases = {
      {EngineKind::cpu, dram.id, memory},
      {EngineKind::dsa, dram.id, memory},
      {EngineKind::ssd, disk.id, {{0, 2}, {1, 2}, {2, 0}, {2, 1}}},
      {EngineKind::gpu,
       gpu.id,
       {{0, 4}, {1, 4}, {4, 0}, {4, 1}, {4, 4}, {4, 5}, {5, 4}, {2, 4}, {3, 4}, {4, 2}, {4, 3}}},
      {EngineKind::migrate, dram.id, {}},
  };
  for (const Ability& each : cases) {
    const Engine engine{.id = EngineId{0}, .kind = each.kind, .home = each.home};
    for (int from = 0; from < 6; ++from) {
      for (int to = 0; to < 6; ++to) {
        EXPECT_EQ(can_copy(engine, *nodes[static_cast<std::size_t>(from)],
                           *nodes[static_cast<std::size_t>(to)]),
                  each.can.contains({from, to}))
            << to_string(each.kind) << " " << from << " " << to;
      }
    }
  }
}

TEST(CacheToPass, CountsEachLastLevelCacheOnce) {
  Machine machine;
  machine.caches = {{.level = 2, .size = 1_MiB, .cpus = {0}},
                    {.level = 3, .size = 32_MiB, .cpus = {0, 1, 2, 3}},
                    {.level = 3, .size = 96_MiB, .cpus = {4, 5}}};
  EXPECT_EQ(cache_to_pass(machine, {0}), 32_MiB);
  EXPECT_EQ(cache_to_pass(machine, {0, 1, 3}), 32_MiB);
  EXPECT_EQ(cache_to_pass(machine, {0, 1, 4, 5}), 128_MiB);
  EXPECT_EQ(cache_to_pass(machine, {9}), 32_MiB) << "unknown";
}

TEST(CacheToPass, CacheOfTheHost_IsImplausibleInAGuest) {
  Machine machine;
  machine.caches = {{.level = 3, .size = 480_MiB, .cpus = {0, 1}},
                    {.level = 3, .size = 32_MiB, .cpus = {2}}};
  EXPECT_EQ(cache_to_pass(machine, {0}), 480_MiB) << "a real host, most of whose CPUs are offline";
  EXPECT_TRUE(caches_believed(machine, {0, 1}));
  machine.provenance["hypervisor"] = "yes";
  EXPECT_EQ(cache_to_pass(machine, {0}), 128_MiB);
  EXPECT_EQ(cache_to_pass(machine, {0, 1, 2}), 160_MiB);
  EXPECT_FALSE(caches_believed(machine, {1, 2}));
  EXPECT_TRUE(caches_believed(machine, {2, 9}));
}

TEST(MachineTest, KnowsTheCpusThatCarryHbm) {
  const std::tuple<const char*, Bytes, bool> cases[] = {
      {"Intel(R) Xeon(R) CPU Max 9480", 64_GiB, false},  // it takes DIMMs too
      {"INTEL(R) XEON(R) CPU MAX 9468", 64_GiB, false},
      {"Intel(R) Xeon Phi(TM) CPU 7250 @ 1.40GHz", 16_GiB, false},
      {"AMD Instinct MI300A Accelerator", 128_GiB, true},
      {"AMD EPYC 9V64H 88-Core Processor", 128_GiB, true},
      {"Fujitsu A64FX", 32_GiB, true}};
  for (const auto& [model, size, alone] : cases) {
    EXPECT_EQ(package_hbm(model)->size, size) << model;
    EXPECT_EQ(package_hbm(model)->alone, alone) << model;
  }
  for (const char* other :
       {"Intel(R) Xeon(R) Platinum 8480+", "AMD EPYC 9654 96-Core Processor", ""}) {
    EXPECT_FALSE(package_hbm(other)) << other;
  }
}

}  // namespace
}  // namespace headrace
