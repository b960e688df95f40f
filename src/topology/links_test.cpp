// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "topology/topology.h"

namespace headrace {
namespace {

NodeId node(std::uint32_t id) { return NodeId{id}; }

// Two sockets of two tiles each, with a GPU at the first and a disk at the second.
Machine two_sockets() {
  Machine machine;
  for (const std::uint32_t id : {0u, 1u, 2u, 3u}) {
    machine.nodes.push_back({.id = node(id), .kind = NodeKind::dram});
  }
  machine.nodes.push_back({.id = node(1000), .kind = NodeKind::storage});
  machine.nodes.push_back({.id = node(2000), .kind = NodeKind::gpu});
  machine.links = {{.kind = LinkKind::upi, .a = {node(0), node(1)}, .b = {node(2), node(3)}},
                   {.kind = LinkKind::mesh, .a = {node(0)}, .b = {node(1)}},
                   {.kind = LinkKind::mesh, .a = {node(2)}, .b = {node(3)}},
                   {.kind = LinkKind::pcie, .a = {node(2000)}, .b = {node(0), node(1)}},
                   {.kind = LinkKind::pcie, .a = {node(1000)}, .b = {node(2), node(3)}}};
  return machine;
}

using Way = std::vector<Crossing>;

TEST(LinksTest, AWayNamesLinksAndDirections) {
  const Machine machine = two_sockets();
  EXPECT_EQ(way_between(machine, node(0), node(1)), (Way{{1, true}}));
  EXPECT_EQ(way_between(machine, node(1), node(0)), (Way{{1, false}}));
  EXPECT_EQ(way_between(machine, node(0), node(3)), (Way{{0, true}}));
  EXPECT_EQ(way_between(machine, node(3), node(1)), (Way{{0, false}}));
}

TEST(LinksTest, DevicesAreReachedOverTheLinkBetweenSockets) {
  const Machine machine = two_sockets();
  EXPECT_EQ(way_between(machine, node(2000), node(1)), (Way{{3, true}}));
  EXPECT_EQ(way_between(machine, node(2000), node(3)), (Way{{3, true}, {0, true}}));
  EXPECT_EQ(way_between(machine, node(1000), node(2000)), (Way{{4, true}, {0, false}, {3, false}}));
}

// Nor by leaving the socket and coming back.
TEST(LinksTest, PathWithinASocket_StaysInside) {
  Machine machine = two_sockets();
  std::erase_if(machine.links, [](const Link& link) { return link.kind == LinkKind::mesh; });
  machine.links.push_back({.kind = LinkKind::nvlink, .a = {node(2)}, .b = {node(3)}});
  EXPECT_TRUE(way_between(machine, node(0), node(1)).empty());
  EXPECT_EQ(way_between(machine, node(2), node(3)), (Way{{3, true}}));
}

TEST(LinksTest, NoWayIsKnownToANodeItselfAndWithoutLinks) {
  Machine machine = two_sockets();
  EXPECT_TRUE(way_between(machine, node(2), node(2)).empty());
  machine.links.clear();
  EXPECT_TRUE(way_between(machine, node(0), node(3)).empty());
}

// The one with the earlier links is taken of two paths of equal length, so that equal machines
// give equal results.
TEST(LinksTest, DiagonalTiles_AreTwoLinksApart) {
  const Machine machine = *Machine::load("xeon-max");
  EXPECT_EQ(way_between(machine, node(0), node(11)), (Way{{1, true}, {3, true}}));
  EXPECT_EQ(way_between(machine, node(3), node(8)), (Way{{3, false}, {1, false}}));
  EXPECT_TRUE(way_between(machine, node(0), node(8)).empty()) << "they are on one tile";
}

}  // namespace
}  // namespace headrace
