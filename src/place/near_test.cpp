// SPDX-License-Identifier: Apache-2.0
#include "place/near.h"

#include <gtest/gtest.h>

#include "tests/support/machines.h"

namespace headrace {
namespace {

// Nodes 0 and 1 with CPUs, 2 and 3 without; nothing else is known.
Machine four_nodes() {
  Machine machine;
  for (std::uint32_t id = 0; id < 4; ++id) {
    machine.nodes.push_back({.id = NodeId{id}, .kind = NodeKind::dram});
    if (id < 2) machine.nodes.back().cpus = {id};
  }
  return machine;
}

NodeId host(const Machine& machine, std::size_t index) {
  const Node* found = host_of(machine, machine.nodes[index]);
  EXPECT_NE(found, nullptr);
  return found == nullptr ? NodeId{99} : found->id;
}

TEST(NearTest, ANodeWithCpusIsItsOwnHost) {
  EXPECT_EQ(host(four_nodes(), 1), NodeId{1});
  Machine machine = four_nodes();
  machine.nodes[0].cpus.clear();
  machine.nodes[1].cpus.clear();
  EXPECT_EQ(host_of(machine, machine.nodes[2]), nullptr);
}

TEST(NearTest, TrustFallsFromDistanceToNumber) {
  Machine machine = four_nodes();
  Node& target = machine.nodes[3];
  EXPECT_EQ(host(machine, 3), NodeId{0});  // the smaller number
  machine.nodes[0].socket = 0;
  machine.nodes[1].socket = 1;
  target.socket = 1;
  EXPECT_EQ(host(machine, 3), NodeId{1});  // the same socket
  target.access = {{.initiator = NodeId{0}}};
  EXPECT_EQ(host(machine, 3), NodeId{0});  // firmware's initiator
  machine.nodes[0].distances = {{target.id, 20}};
  machine.nodes[1].distances = {{target.id, 13}};
  EXPECT_EQ(host(machine, 3), NodeId{1});  // the distance
}

TEST(NearTest, SocketsByFieldThenByDistanceThenUnknown) {
  Machine machine = four_nodes();
  const Node& a = machine.nodes[0];
  const Node& b = machine.nodes[1];
  EXPECT_EQ(same_socket(machine, a, a), true);
  EXPECT_EQ(same_socket(machine, a, b), std::nullopt);
  machine.nodes[0].distances = {{NodeId{0}, 10}, {NodeId{1}, 12}, {NodeId{2}, 21}};
  EXPECT_EQ(same_socket(machine, a, b), true);
  EXPECT_EQ(same_socket(machine, a, machine.nodes[2]), false);
  machine.nodes[0].socket = 0;
  machine.nodes[1].socket = 1;
  EXPECT_EQ(same_socket(machine, a, b), false);
}

}  // namespace
}  // namespace headrace
