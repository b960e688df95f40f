// SPDX-License-Identifier: Apache-2.0
// Machines, requests and short names for the tests of routes.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

#include "headrace/route.h"
#include "tests/support/machines.h"

namespace headrace::test {

using Ids = std::vector<std::uint32_t>;

// The engines of a route's parts, in their order.
inline std::vector<std::uint32_t> engines(const Result<Route>& route) {
  EXPECT_TRUE(route) << route.error().message;
  std::vector<std::uint32_t> found;
  if (!route) return found;
  for (const RoutePart& part : route->parts) found.push_back(raw(part.engine));
  return found;
}

inline Machine xeon_max() {
  auto machine = Machine::load("xeon-max");
  EXPECT_TRUE(machine);
  return *std::move(machine);
}

// A few memory nodes and a disk with random engines, sockets, distances and rates.
inline Machine random_machine() {
  Machine machine;
  const auto memories = *rc::gen::inRange(1u, 5u);
  for (unsigned i = 0; i < memories; ++i) {
    Node node{.id = NodeId{i}, .kind = *rc::gen::element(NodeKind::dram, NodeKind::hbm)};
    if (*rc::gen::arbitrary<bool>()) node.cpus = {i};
    if (*rc::gen::arbitrary<bool>()) node.socket = *rc::gen::inRange(0u, 2u);
    if (*rc::gen::arbitrary<bool>()) node.distances[NodeId{0}] = *rc::gen::inRange(10u, 30u);
    machine.nodes.push_back(std::move(node));
  }
  machine.nodes.push_back({.id = kDisk, .kind = NodeKind::storage});
  const auto count = *rc::gen::inRange(0u, 6u);
  for (unsigned i = 0; i < count; ++i) {
    const auto kind =
        *rc::gen::element(EngineKind::cpu, EngineKind::dsa, EngineKind::ssd, EngineKind::migrate);
    const NodeId home = kind == EngineKind::ssd ? kDisk : NodeId{*rc::gen::inRange(0u, memories)};
    machine.engines.push_back({.id = EngineId{i}, .kind = kind, .name = "e", .home = home});
    for (const Node& from : machine.nodes) {
      for (const Node& to : machine.nodes) {
        if (*rc::gen::inRange(0, 3) == 0) continue;
        machine.copy_rates.push_back({.engine = EngineId{i},
                                      .from = from.id,
                                      .to = to.id,
                                      .latency = Nanoseconds{*rc::gen::inRange(0, 1'000'000)},
                                      .bandwidth = {*rc::gen::inRange(1, 300) * 1e8}});
      }
    }
  }
  return machine;
}

inline RouteRequest random_request(const Machine& machine) {
  const auto id = [&] { return *rc::gen::elementOf(machine.nodes); };
  const auto bytes = *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(0, 3 * 4096),
                                     rc::gen::inRange<std::uint64_t>(0, 8 << 20),
                                     rc::gen::inRange<std::uint64_t>(0, 1ull << 50));
  return {.from = id().id, .to = id().id, .bytes = {bytes}};
}

}  // namespace headrace::test
