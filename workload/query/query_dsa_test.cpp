// SPDX-License-Identifier: Apache-2.0
// Query-driven prefetching by eight software DSA devices between two memories; in the guest, from
// DRAM to HBM.
#include <gtest/gtest.h>

#include <algorithm>

#include "headrace/backend.h"
#include "headrace/workload/query.h"
#include "tests/support/dsa/dsa.h"
#include "workload/query/table_testing.h"

namespace headrace {
namespace {

constexpr unsigned kDevices = 8;

// This machine with a device at each of its first nodes.
Machine with_devices(Machine machine) {
  for (unsigned i = 0; i < kDevices; ++i) {
    machine.engines.push_back({.id = EngineId{static_cast<std::uint32_t>(machine.engines.size())},
                               .kind = EngineKind::dsa,
                               .name = "dsa" + std::to_string(i),
                               .home = machine.nodes[i % machine.nodes.size()].id,
                               .reason = "test"});
  }
  return machine;
}

std::vector<const Node*> memories(const Machine& machine) {
  std::vector<const Node*> found;
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable() && node.capacity.value_or(0_B) > 64_MiB) found.push_back(&node);
  }
  return found;
}

TEST(QueryDsa, GivesExactAnswersByEachRouteAndWithFailingDescriptors) {
  const test::TempDirectory directory;
  const Machine machine = with_devices(Machine::discover({.storage = {directory.path()}}).value());
  const auto memory = memories(machine);
  if (memory.size() < 2) GTEST_SKIP() << "one memory node; runs in the guest";
  const test::Lineitem lineitem(directory.path(), 50'021);
  const Table table = Table::open(machine, directory.path()).value();
  const auto other =
      std::ranges::find_if(memory, [&](const Node* node) { return node->kind != memory[0]->kind; });
  std::vector<EngineId> devices;
  for (const Engine& engine : machine.engines) {
    if (engine.kind == EngineKind::dsa) devices.push_back(engine.id);
  }
  QueryOptions options;
  options.slow = memory[0]->id;
  options.fast = (other == memory.end() ? memory[1] : *other)->id;
  options.block = 32_KiB;
  options.budget = 4_MiB;
  for (const double failing : {0.0, 0.01}) {
    for (const RoutePolicy& route : {RoutePolicy(place::smart), RoutePolicy(place::brute_force)}) {
      emulator::BackendOptions emulated;
      emulated.device.faults.hardware_chance = failing;
      Backends backends = Backends::open(machine).value();
      backends.add(emulator::open_backend(machine, devices, emulated).value());
      Mover mover(machine, backends, {.route = route});
      const auto run = run_query(table, mover, options);
      ASSERT_TRUE(run.has_value()) << run.error().message;
      EXPECT_EQ(run->answer, lineitem.answer("q6"));
      EXPECT_EQ(run->cache->failures, 0U);
    }
  }
}

}  // namespace
}  // namespace headrace
