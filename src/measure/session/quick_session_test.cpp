// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>

#include "headrace/measure.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/session.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

using namespace session;

// The points that selections of `bandwidth` and `copy` choose.
std::vector<Point> points_of(const Machine& machine, const MeasureOptions& options) {
  std::vector<Point> points;
  for (const Selection& selection : options.selections) {
    for (const Experiment* experiment :
         {&experiment_bandwidth::kExperiment, &experiment_copy::kExperiment}) {
      if (selection.experiment != experiment->name) continue;
      const Scope scope{.machine = machine, .only = selection.only};
      for (Point& point : experiment->points(scope)) {
        if (scope.wants(point.row, experiment->parameters)) points.push_back(std::move(point));
      }
    }
  }
  return points;
}

// A machine whose nodes with CPUs all have this process's usable CPUs.
Machine with_own_cpus(Machine machine) {
  for (Node& node : machine.nodes) {
    if (!node.cpus.empty()) node.cpus = usable_cpus();
  }
  return machine;
}

TEST(QuickSession, LeavesNoMemoryOfALargeMachineOut) {
  const Machine machine = with_own_cpus(*Machine::load("xeon-max"));
  const MeasureOptions options = quick_session(machine, ".");
  std::vector<Point> points = points_of(machine, options);
  const std::size_t of_memory = points.size();
  for (int i = 0; i < 7; ++i) {  // those of a disk, which the preset lacks
    points.push_back(Point{.row = {.experiment = "storage"},
                           .rank = 1,
                           .cost = std::chrono::milliseconds{300},
                           .memory = {},
                           .comparable = {},
                           .prepare = {}});
  }
  leave_out(points, options);
  std::set<std::uint64_t> copied;
  for (const Point& point : std::span(points).first(of_memory)) {
    EXPECT_EQ(point.row.reason, "") << point.row.key();
    if (point.row.experiment == "copy") copied.insert(*point.row.number("to"));
  }
  EXPECT_EQ(copied.size(), 16U);
}

// The two nodes have different numbers of CPUs, and the second node's CPUs are nearest to the
// memory without CPUs.
TEST(QuickSession, CopiesByTheThreadsOfTheNodeThatCopies) {
  const CpuSet cpus = usable_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU: no node has more than another";
  Machine machine = test::machine_of({{cpus.front()}, cpus, {}});
  machine.nodes[2].kind = NodeKind::cxl;
  machine.nodes[2].access = {{.initiator = NodeId{1}}};
  std::size_t between = 0;
  for (const Point& point : points_of(machine, quick_session(machine, "."))) {
    EXPECT_EQ(point.row.reason, "") << point.row.key();
    if (point.row.experiment != "copy" || *point.row.number("from") == *point.row.number("to")) {
      continue;
    }
    ++between;
    const bool by_one = *point.row.number("cpu_node") == 0;
    EXPECT_EQ(*point.row.number("threads"), by_one ? 1 : cpus.size()) << point.row.key();
  }
  EXPECT_EQ(between, 2U * 2U * 3U) << "to and from node 2, by both nodes with CPUs, three sizes";
}

}  // namespace
}  // namespace headrace
