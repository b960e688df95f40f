// SPDX-License-Identifier: Apache-2.0
// Small machines for tests of the model.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "headrace/machine.h"
#include "model/model.h"

namespace headrace {

// A node of one socket, with `cpus` CPUs from `first`.
inline Node test_node(unsigned id, NodeKind kind, unsigned first = 0, unsigned cpus = 0) {
  Node node{.id = NodeId{id}, .kind = kind, .name = "node " + std::to_string(id)};
  for (unsigned cpu = 0; cpu < cpus; ++cpu) node.cpus.push_back(first + cpu);
  node.socket = 0;
  return node;
}

// DDR with 8 CPUs (node 0) and HBM (node 1).
inline Machine two_memories() {
  Machine machine;
  machine.nodes = {test_node(0, NodeKind::dram, 0, 8), test_node(1, NodeKind::hbm)};
  return machine;
}

inline Ceiling ceiling_to(std::string name, std::vector<unsigned> nodes, double bandwidth,
                          Counts counts = Counts::both) {
  Ceiling ceiling{.name = std::move(name), .bandwidth = Curve{{{0, bandwidth}}}};
  CrossingPath path{.counts = counts};
  for (const unsigned id : nodes) path.to.push_back(NodeId{id});
  ceiling.paths.push_back(std::move(path));
  return ceiling;
}

inline Solver solver_of(const Machine& machine, MachineModel model) {
  auto solver = Solver::create(machine, std::move(model));
  EXPECT_TRUE(solver.has_value()) << (solver ? "" : solver.error().message);
  return *std::move(solver);
}

}  // namespace headrace
