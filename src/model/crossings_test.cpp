// SPDX-License-Identifier: Apache-2.0
#include "model/crossings.h"

#include <gtest/gtest.h>

#include "model/model_testing.h"

namespace headrace {
namespace {

// Data from node 0 to node 1: writes of 1 by 0, and reads of 0 by 1.
TEST(CrossingsTest, DirectionOfALink_HasTwoPaths) {
  const Machine machine = two_memories();
  Ceiling link{.name = "link", .kind = CeilingKind::link, .bandwidth = Curve{{{0, 1e9}}}};
  link.paths = {{.from = {NodeId{0}}, .to = {NodeId{1}}, .counts = Counts::writes},
                {.from = {NodeId{1}}, .to = {NodeId{0}}, .counts = Counts::reads}};
  const MachineModel model{.ceilings = {link}};
  const Crossings crossings(machine, model);
  const auto bytes = [&](unsigned from, unsigned to, AccessKind kind) {
    const auto found =
        crossings.of({.node = NodeId{from}}, {.node = NodeId{to}, .kind = kind, .bytes = 2}, 1, 0);
    return found.empty() ? 0.0 : found[0].reads + found[0].writes;
  };
  EXPECT_EQ(bytes(0, 1, AccessKind::write), 2);
  EXPECT_EQ(bytes(0, 1, AccessKind::read), 0);
  EXPECT_EQ(bytes(0, 1, AccessKind::store), 2);
  EXPECT_EQ(bytes(1, 0, AccessKind::read), 2);
  EXPECT_EQ(bytes(1, 0, AccessKind::write), 0);
  EXPECT_EQ(bytes(0, 0, AccessKind::store), 0);
}

TEST(CrossingsTest, PathThatMatchesTwice_CountsOnce) {
  const Machine machine = two_memories();
  Ceiling ceiling = ceiling_to("c", {0}, 1e9);
  ceiling.paths.push_back(ceiling.paths[0]);
  const MachineModel model{.ceilings = {ceiling}};
  const auto found = Crossings(machine, model).of({.node = NodeId{0}}, {.node = NodeId{0}}, 1, 0);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].reads, 1);
}

TEST(CrossingsTest, EnginesAndCpus_ExcludeEachOther) {
  Machine machine = two_memories();
  machine.engines = {
      {.id = EngineId{0}, .kind = EngineKind::dsa, .name = "dsa0", .home = NodeId{0}}};
  Ceiling cores = ceiling_to("cores", {0}, 1e9);
  cores.paths[0].cpus = {0, 1};
  Ceiling engine = ceiling_to("engine", {0}, 1e9);
  engine.paths[0].engines = {EngineId{0}};
  const MachineModel model{.ceilings = {cores, engine}};
  const Crossings crossings(machine, model);
  const auto by_engine =
      crossings.of({.node = NodeId{0}, .engine = EngineId{0}}, {.node = NodeId{0}}, 1, 0);
  ASSERT_EQ(by_engine.size(), 1u);
  EXPECT_EQ(by_engine[0].ceiling, 1u);
  const auto by_core =
      crossings.of({.node = NodeId{0}, .cpu_group = crossings.group(1)}, {.node = NodeId{0}}, 1, 0);
  ASSERT_EQ(by_core.size(), 1u);
  EXPECT_EQ(by_core[0].ceiling, 0u);
  EXPECT_TRUE(
      crossings.of({.node = NodeId{0}, .cpu_group = crossings.group(2)}, {.node = NodeId{0}}, 1, 0)
          .empty());
  EXPECT_EQ(crossings.group(10000), 0u);
}

}  // namespace
}  // namespace headrace
