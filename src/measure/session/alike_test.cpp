// SPDX-License-Identifier: Apache-2.0
#include "measure/session/alike.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "measure/instruments/worker_pool.h"
#include "measure/session/available.h"

namespace headrace::session {
namespace {

// Two sockets with two nodes of DRAM each, and HBM beside each node.
Machine four_tiles() {
  Machine machine;
  for (unsigned id = 0; id < 8; ++id) {
    Node node{.id = NodeId{id},
              .kind = id < 4 ? NodeKind::dram : NodeKind::hbm,
              .capacity = 16_GiB,
              .socket = id % 4 / 2};
    if (id < 4) node.cpus = {2 * id, 2 * id + 1};
    if (id >= 4) node.access = {{.initiator = NodeId{id - 4}, .read_latency = Nanoseconds{100}}};
    machine.nodes.push_back(node);
  }
  return machine;
}

constexpr Parameter kPairParameters[] = {{"cpu_node", ParameterKind::node},
                                         {"memory_node", ParameterKind::node},
                                         {"mix", ParameterKind::mix}};

std::vector<Point> all_pairs() {
  std::vector<Point> points;
  for (std::uint64_t cpu = 0; cpu < 4; ++cpu) {
    for (std::uint64_t memory = 0; memory < 8; ++memory) {
      for (const char* mix : {"read", "write"}) {
        Point& point = points.emplace_back();
        point.row = make_row("bandwidth", kPairParameters, {cpu, memory, mix}, "B/s");
        point.memory = {NodeId{static_cast<std::uint32_t>(memory)}};
        point.of_matrix = point.row.word("mix") == "read";
      }
    }
  }
  return points;
}

class Alike : public testing::Test {
 protected:
  Machine machine_ = four_tiles();
  const instruments::AsIfUsable all_cpus_{{0, 1, 2, 3, 4, 5, 6, 7}};
};

TEST_F(Alike, PairsAreMeasuredOnceOnTheFewestMemories) {
  std::vector<Point> points = all_pairs();
  measure_alike_once(points, machine_, kPairParameters, false);
  // Two kinds, near, on the socket and far, and two mixes.
  ASSERT_EQ(points.size(), 12u);
  std::size_t others = 0;
  for (const Point& point : points) {
    EXPECT_EQ(*point.row.number("memory_node") % 4, 0u) << "all CPUs share one memory's cycle";
    others += point.row.stands_for.size();
  }
  EXPECT_EQ(others, 64u - 12u);
  EXPECT_EQ(points[0].row.stands_for,
            (std::vector<std::string>{"cpu_node=1 memory_node=1", "cpu_node=2 memory_node=2",
                                      "cpu_node=3 memory_node=3"}));
}

TEST_F(Alike, CellsOfAMatrixStayWhereAllIsMeasured) {
  std::vector<Point> points = all_pairs();
  measure_alike_once(points, machine_, kPairParameters, true);
  EXPECT_EQ(points.size(), 32u + 6u);
}

TEST_F(Alike, AnotherDistanceAnotherNumberOfCpusOrAReasonIsNotAlike) {
  machine_.nodes[3].cpus = {6};
  machine_.nodes[1].distances = {{NodeId{1}, 11}};
  std::vector<Point> points = all_pairs();
  points[0].row.reason = "cannot be measured";
  measure_alike_once(points, machine_, kPairParameters, false);
  EXPECT_TRUE(points[0].row.stands_for.empty());
  const auto is_there = [&](std::uint64_t cpu) {
    return std::ranges::any_of(points, [&](const Point& point) {
      return *point.row.number("cpu_node") == cpu && *point.row.number("memory_node") == cpu;
    });
  };
  EXPECT_TRUE(is_there(1) && is_there(3));
}

// As `measure` does: refuse first.
TEST_F(Alike, WhatACpusetForbidsStandsForNothing) {
  HostMemory host;
  for (unsigned id = 0; id < 8; ++id)
    host.nodes.push_back({.id = NodeId{id}, .allowed = id % 4 != 0});
  std::vector<Point> points = all_pairs();
  refuse_forbidden(points, host);
  measure_alike_once(points, machine_, kPairParameters, false);
  std::size_t measured = 0;
  for (const Point& point : points) {
    const bool forbidden = *point.row.number("memory_node") % 4 == 0;
    EXPECT_EQ(point.row.reason.empty(), !forbidden);
    EXPECT_TRUE(!forbidden || point.row.stands_for.empty());
    if (!forbidden) ++measured;
  }
  EXPECT_EQ(measured, 12u) << "both kinds, near, on the socket and far, and two mixes";
}

TEST_F(Alike, DistanceIsOfTheCpusThatAreNearest) {
  const auto distance = [&](std::size_t a, std::size_t b) {
    return distance_of(machine_, machine_.nodes[a], machine_.nodes[b]);
  };
  EXPECT_EQ(distance(0, 0), "near");
  EXPECT_EQ(distance(0, 4), "near");
  EXPECT_EQ(distance(0, 5), "socket");
  EXPECT_EQ(distance(1, 6), "far");
}

}  // namespace
}  // namespace headrace::session
