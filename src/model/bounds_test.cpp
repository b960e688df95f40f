// SPDX-License-Identifier: Apache-2.0
#include "model/bounds.h"

#include <gtest/gtest.h>

#include "model/model_testing.h"

namespace headrace {
namespace {

const Ceiling* named(const MachineModel& model, std::string_view name) {
  for (const Ceiling& each : model.ceilings) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

Machine rated() {
  Machine machine = two_memories();
  machine.nodes[0].access = {{.initiator = NodeId{0},
                              .read_latency = Nanoseconds{97},
                              .read_bandwidth = BytesPerSecond{76.8e9},
                              .write_bandwidth = BytesPerSecond{50e9},
                              .source = "HMAT"}};
  machine.links = {{.kind = LinkKind::mesh,
                    .a = {NodeId{0}},
                    .b = {NodeId{1}},
                    .each_way = BytesPerSecond{40e9},
                    .each_way_source = "rated"}};
  machine.engines = {
      {.id = EngineId{0}, .kind = EngineKind::dsa, .name = "dsa0", .home = NodeId{0}}};
  machine.copy_rates = {{.engine = EngineId{0},
                         .from = NodeId{0},
                         .to = NodeId{1},
                         .bandwidth = BytesPerSecond{30e9},
                         .source = "measured once"}};
  return machine;
}

TEST(BoundsTest, MachineWithoutModel_GetsItsRatedFigures) {
  const MachineModel model = *model_of(rated());
  EXPECT_TRUE(model.bound);
  const Ceiling* memory = named(model, "memory of node 0");
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->bandwidth.at(0), 76.8e9);
  EXPECT_EQ(memory->bandwidth.at(1), 50e9);
  EXPECT_EQ(memory->evidence.basis, ConstantBasis::rated);
  EXPECT_EQ(memory->evidence.source, "HMAT");
  const Ceiling* engine = named(model, "dsa0 from node 0");
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->bandwidth.at(0), 30e9);
  EXPECT_EQ(engine->evidence.basis, ConstantBasis::measured);
}

TEST(BoundsTest, LinkIsCrossedByDataInItsDirection) {
  const auto solver = Solver::create(rated());
  ASSERT_TRUE(solver.has_value());
  for (const AccessKind kind : {AccessKind::read, AccessKind::write}) {
    const Flow flow{.name = "f",
                    .initiator = NodeId{0},
                    .accesses = {{.node = NodeId{1}, .kind = kind}},
                    .in_flight_bytes = 1e5};
    const auto solution = solver->solve(std::vector{flow});
    ASSERT_TRUE(solution.has_value());
    EXPECT_EQ(solver->text_of(solution->flows[0].limit, flow),
              kind == AccessKind::read ? "mesh 0-1, backward" : "mesh 0-1, forward");
    EXPECT_NEAR(solution->flows[0].rate, 40e9, 1e9);
  }
}

TEST(BoundsTest, LatencyIsTheMachinesOrAssumed) {
  const Machine machine = rated();
  EXPECT_EQ(latency_of(machine, NodeId{0}, NodeId{0}).read_ns, 97);
  const IdleLatency hbm = latency_of(machine, NodeId{0}, NodeId{1});
  EXPECT_EQ(hbm.read_ns, 138);
  EXPECT_EQ(hbm.evidence.basis, ConstantBasis::assumed);
  EXPECT_EQ(hbm.evidence.source, "usual for hbm");
}

TEST(BoundsTest, EveryPreset_HasAModelOrBounds) {
  for (const std::string& name : presets()) {
    const auto machine = Machine::load(name);
    ASSERT_TRUE(machine.has_value()) << name;
    const auto solver = Solver::create(*machine);
    EXPECT_TRUE(solver.has_value()) << name << (solver ? "" : solver.error().message);
  }
}

}  // namespace
}  // namespace headrace
