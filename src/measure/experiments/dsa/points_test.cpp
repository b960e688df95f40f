// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/dsa/points.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "measure/experiments/dsa/testing.h"

namespace headrace::experiment_dsa {

using namespace session;

namespace {

// The machine as a target that is never run.
class Imagined final : public DsaTarget {
 public:
  explicit Imagined(Machine machine) : machine_(std::move(machine)) {}
  Result<std::unique_ptr<DsaRun>> prepare(const std::vector<DsaThread>&, const DsaShape&,
                                          BufferPool&) const override {
    return Unexpected(Error{ErrorCode::unsupported, "imagined"});
  }
  WithStream with_stream() const override {
    return [](const DsaThread&, const DsaShape&, bool) { return Result<double>(1); };
  }
  Basis basis() const override { return Basis::emulated; }
  const Machine& machine() const override { return machine_; }
  std::vector<EngineId> engines() const override {
    std::vector<EngineId> found;
    for (const Engine& engine : machine_.engines) {
      if (engine.kind == EngineKind::dsa) found.push_back(engine.id);
    }
    return found;
  }

 private:
  const Machine machine_;
};

std::vector<DsaPoint> points_of(const DsaTarget& target, std::string_view part) {
  auto points = dsa_points({.target = target, .host = target.machine(), .with_cpu = true});
  if (!part.empty()) {
    std::erase_if(points, [&](const DsaPoint& point) { return point.row.word("part") != part; });
  }
  return points;
}

std::size_t count_of_engines(const DsaPoint& point) {
  const std::string_view engines = point.row.word("engines");
  if (engines.empty()) return 0;
  return 1 + static_cast<std::size_t>(std::ranges::count(engines, ' '));
}

TEST(DsaPoints, RowsSayWhatIsRun) {
  const Imagined target(test::xeon_max());
  std::vector<std::string> parts;
  for (const DsaPoint& point : points_of(target, "")) {
    const std::string part(point.row.word("part"));
    if (parts.empty() || parts.back() != part) parts.push_back(part);
    EXPECT_EQ(point.row.experiment, "dsa");
    EXPECT_EQ(point.kind == DsaPoint::Kind::nothing, !point.row.reason.empty());
    const bool cores = point.row.word("route") == "cores";
    EXPECT_EQ(point.row.basis, cores ? Basis::measured : Basis::emulated);
    if (point.kind != DsaPoint::Kind::devices) continue;
    EXPECT_EQ(*point.row.number("threads"), point.threads.size());
    std::size_t copies = 0;
    for (const DsaThread& thread : point.threads) copies += thread.copies;
    EXPECT_EQ(point.row.details.at("copies"), static_cast<double>(copies));
    EXPECT_GT(count_of_engines(point), 0u);
  }
  EXPECT_EQ(parts, (std::vector<std::string>{"submission", "threads", "route", "cpu", "queue",
                                             "interference"}));
}

// Fürst 2024, 3.2.2: the same 120 copies whatever the number of threads.
TEST(DsaPoints, ThreadsSplitTheSameCopies) {
  for (const DsaPoint& point : points_of(Imagined(test::xeon_max()), "threads")) {
    EXPECT_EQ(point.row.details.at("copies"), 120);
  }
}

// 3.2.3: all eight; on the socket four; across sockets those at the two ends.
TEST(DsaPoints, RoutesLeaveDevicesFree) {
  std::size_t seen = 0;
  for (const DsaPoint& point : points_of(Imagined(test::xeon_max()), "route")) {
    std::size_t used = 8;
    if (point.row.word("route") == "smart") used = *point.row.number("to") < 12 ? 4 : 2;
    EXPECT_EQ(count_of_engines(point), used);
    const auto add = [](Bytes sum, const DsaThread& thread) { return sum + thread.bytes; };
    EXPECT_EQ(std::accumulate(point.threads.begin(), point.threads.end(), Bytes{0}, add), 1_GiB);
    ++seen;
  }
  EXPECT_EQ(seen, 8U);
}

TEST(DsaPoints, OtherMachinesHaveOtherPairs) {
  Machine machine = test::xeon_max();
  std::erase_if(machine.nodes, [](const Node& node) { return node.kind == NodeKind::hbm; });
  const auto pairs = [&] {
    const Imagined target(machine);
    return dsa_pairs({.target = target, .host = machine}).size();
  };
  EXPECT_EQ(pairs(), 7U) << "from node 0 to each other";
  machine.nodes.resize(1);
  EXPECT_EQ(pairs(), 1U) << "there is no other";
}

}  // namespace
}  // namespace headrace::experiment_dsa
