#include "measure/dsa_points.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "measure/dsa_testing.h"

namespace headrace {
namespace {

DsaScope scope_on(const Machine& machine, bool emulated = true) {
  DsaScope scope{.machine = machine, .emulated = emulated};
  for (const Engine& engine : machine.engines) {
    if (engine.kind == EngineKind::dsa) scope.engines.push_back(engine.id);
  }
  return scope;
}

std::vector<DsaPoint> points_named(std::string_view name, const DsaScope& scope) {
  const auto all = all_dsa_experiments();
  return std::ranges::find(all, name, &DsaExperiment::name)->points(scope);
}

TEST(DsaPoints, RowsSayWhatIsRun) {
  const Machine machine = test::xeon_max();
  for (const DsaExperiment& experiment : all_dsa_experiments()) {
    for (const DsaPoint& point : experiment.points(scope_on(machine))) {
      EXPECT_EQ(point.row.experiment, experiment.name);
      EXPECT_EQ(point.kind == DsaPoint::Kind::nothing, !point.row.reason.empty());
      if (point.kind != DsaPoint::Kind::devices) continue;
      EXPECT_EQ(point.row.threads, point.threads.size());
      std::size_t copies = 0;
      for (const DsaThread& thread : point.threads) copies += thread.copies;
      EXPECT_EQ(point.row.copies, copies);
      EXPECT_FALSE(point.row.engines.empty());
    }
  }
}

// Fuerst 2024, 3.2.2: the same 120 copies whatever the number of threads.
TEST(DsaPoints, ThreadsSplitTheSameCopies) {
  const Machine machine = test::xeon_max();
  for (const DsaPoint& point : points_named("threads", scope_on(machine))) {
    EXPECT_EQ(point.row.copies, 120U);
  }
}

// 3.2.3: all eight; on the socket four; across sockets those at the two ends.
TEST(DsaPoints, RoutesLeaveDevicesFree) {
  const Machine machine = test::xeon_max();
  std::size_t seen = 0;
  for (const DsaPoint& point : points_named("route", scope_on(machine))) {
    std::size_t used = 8;
    if (point.row.route == "smart") used = raw(*point.row.to) < 12 ? 4 : 2;
    EXPECT_EQ(point.row.engines.size(), used);
    EXPECT_EQ(point.row.free_engines.size(), 8 - used);
    const auto add = [](Bytes sum, const DsaThread& thread) { return sum + thread.bytes; };
    EXPECT_EQ(std::accumulate(point.threads.begin(), point.threads.end(), Bytes{0}, add), 1_GiB);
    ++seen;
  }
  EXPECT_EQ(seen, 8U);
}

TEST(DsaPoints, WhatAModelCannotSayHasAReason) {
  const Machine machine = test::xeon_max();
  const auto with_reasons = [](const std::vector<DsaPoint>& points) {
    return std::ranges::count(points, DsaPoint::Kind::nothing, &DsaPoint::kind);
  };
  EXPECT_EQ(with_reasons(points_named("cpu", scope_on(machine))), 8);
  EXPECT_EQ(with_reasons(points_named("interference", scope_on(machine))), 2);
  EXPECT_EQ(with_reasons(points_named("cpu", scope_on(machine, false))), 0);
}

TEST(DsaPoints, OtherMachinesHaveOtherPairs) {
  Machine machine = test::xeon_max();
  std::erase_if(machine.nodes, [](const Node& node) { return node.kind == NodeKind::hbm; });
  EXPECT_EQ(dsa_pairs(scope_on(machine)).size(), 7U) << "from node 0 to each other";
  machine.nodes.resize(1);
  EXPECT_EQ(dsa_pairs(scope_on(machine)).size(), 1U) << "there is no other";
}

}  // namespace
}  // namespace headrace
