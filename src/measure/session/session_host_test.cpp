// SPDX-License-Identifier: Apache-2.0
// `measure` as a whole on this host: points match their rows, a small budget is kept and reported,
// and the machine learns from the results. Values are not tested, except against impossible ones.
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <set>

#include "headrace/clock.h"
#include "headrace/measure.h"
#include "measure/experiments/dsa/dsa.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/gpu/gpu.h"
#include "measure/experiments/migrate/migrate.h"
#include "measure/session/session.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

TEST(MeasureTest, KeysAreUniqueAndEveryPointCanBePrepared) {
  const Machine machine = Machine::discover().value();
  std::set<std::string> keys;
  for (const session::Experiment* experiment :
       {&experiment_latency::kExperiment, &experiment_bandwidth::kExperiment,
        &experiment_loaded::kExperiment, &experiment_stream::kExperiment,
        &experiment_copy::kExperiment, &experiment_migrate::kExperiment,
        &experiment_storage::kExperiment, &experiment_interference::kExperiment,
        &experiment_dsa::kExperiment, &experiment_gpu::kExperiment}) {
    const auto points = experiment->points({machine});
    EXPECT_FALSE(points.empty()) << experiment->name;
    for (const session::Point& point : points) {
      EXPECT_EQ(point.row.experiment, experiment->name);
      EXPECT_TRUE(keys.insert(point.row.key()).second) << point.row.key();
      EXPECT_TRUE(point.prepare || point.row.has_flag("absent"));
      EXPECT_EQ(point.prepare == nullptr, !point.row.reason.empty());
      EXPECT_GT(point.cost.count() + (point.row.reason.empty() ? 0 : 1), 0);
      // Readers of profiles (reports, exports) rely on it.
      for (const auto& [name, value] : point.row.parameters) {
        EXPECT_EQ(std::ranges::count(experiment->parameters, name, &session::Parameter::name), 1);
      }
      for (const session::Parameter& named : experiment->parameters) {
        EXPECT_TRUE(!named.required || point.row.parameters.empty() ||
                    point.row.parameter(named.name) != nullptr)
            << named.name;
      }
    }
  }
}

TEST(MeasureTest, ASmallBudgetMeasuresWhatMattersAndSaysWhatItLeftOut) {
  const Nanoseconds begin = system_clock().now();
  const auto profile = measure(test::small_host(1_GiB), {.experiments = {"latency", "bandwidth"},
                                                         .budget = std::chrono::seconds{2}});
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  // Far above the budget, for sanitizers and busy machines whose rounds are long.
  EXPECT_LT(system_clock().now() - begin, std::chrono::seconds{60});
  std::size_t measured = 0;
  std::size_t left_out = 0;
  bool latency_is_measured = false;
  for (const Row& row : profile->rows) {
    latency_is_measured |= row.experiment == "latency" && row.value.has_value();
    EXPECT_NE(row.value.has_value(), !row.reason.empty()) << row.key();
    left_out += row.has_flag("left_out") ? 1 : 0;
    if (!row.value) continue;
    ++measured;
    EXPECT_GT(row.value->median, 0) << row.key();
    EXPECT_LE(row.value->interval.low, row.value->median);
    EXPECT_GE(row.value->interval.high, row.value->median);
    EXPECT_EQ(row.samples.size(), row.value->runs);
  }
  EXPECT_GT(measured, 0u);
  EXPECT_GT(left_out, 0u);
  EXPECT_EQ(profile->conditions.at("budget_s"), "2.0");
  const auto& access = profile->machine.nodes.front().access;
  const auto known = std::ranges::find_if(access, [](const auto& a) { return a.measured; });
  ASSERT_NE(known, access.end());
  // On a slow machine bandwidth, which is as wanted, may have taken all of the time.
  EXPECT_EQ(known->read_latency.has_value(), latency_is_measured);
  // A profile is also a machine document.
  EXPECT_TRUE(Machine::from_json(profile->to_json()).has_value());
}

TEST(MeasureTest, RowsThatAreKnownAreKeptAndNotMeasuredAgain) {
  std::vector<Row> known;
  const Machine machine = test::small_host();
  for (const session::Point& point : experiment_stream::kExperiment.points({machine})) {
    Row row = point.row;
    row.samples = {1, 1, 1};
    row.value = summarize(row.samples);
    known.push_back(row);
  }
  known.back().value.reset();
  const std::string missing = known.back().key();
  const auto profile = measure(
      machine, {.experiments = {"stream"}, .budget = std::nullopt, .known = known, .rounds = 1});
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  ASSERT_EQ(profile->rows.size(), known.size());
  for (const Row& row : profile->rows) {
    ASSERT_TRUE(row.value.has_value()) << row.reason;
    EXPECT_EQ(row.value->median == 1, row.key() != missing) << row.key();
  }
}

// The first point of each experiment that requests huge pages.
std::vector<session::Point> points_of_huge_pages(const Machine& machine) {
  std::vector<session::Point> points;
  for (const session::Experiment* experiment :
       {&experiment_latency::kExperiment, &experiment_bandwidth::kExperiment,
        &experiment_loaded::kExperiment, &experiment_stream::kExperiment,
        &experiment_copy::kExperiment, &experiment_parallelism::kExperiment,
        &experiment_interference::kExperiment, &experiment_split::kExperiment}) {
    for (session::Point& point : experiment->points({machine})) {
      if (!point.row.reason.empty() || point.memory.pages == PageSize::base) continue;
      points.push_back(std::move(point));
      break;
    }
  }
  return points;
}

// Buffers request huge pages, so rows of every experiment must say where these are missing,
// although no experiment checks it.
TEST(MeasureTest, RowsOnSmallPagesAreFlaggedByEveryExperiment) {
  const Machine machine = test::small_host();
  std::vector<session::Point> points = points_of_huge_pages(machine);
  EXPECT_GE(points.size(), 4u);
  const int before = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
  ASSERT_EQ(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
  const auto found = session::run_session(
      machine, std::move(points), {},
      {.budget = std::nullopt, .rounds = 1, .repetitions = 1, .noise_checks = false}, {});
  EXPECT_EQ(prctl(PR_SET_THP_DISABLE, before, 0, 0, 0), 0);
  std::size_t measured = 0;
  for (const Row& row : found.rows) {
    if (!row.value) continue;  // too busy
    EXPECT_TRUE(row.has_flag("not_huge")) << row.key();
    EXPECT_EQ(row.details.at("huge_part"), 0) << row.key();
    ++measured;
  }
  EXPECT_GE(measured, 3u);
}

// A virtual machine with its host's cache size: buffers that must exceed the caches have at least
// 512 MiB. The estimated time of touching shows their size.
TEST(MeasureTest, BuffersHaveAFloorWhereTheCacheIsNotBelieved) {
  Machine machine = Machine::discover().value();
  const CpuSet cpus = instruments::usable_cpus();
  machine.nodes = {{.id = NodeId{0}, .kind = NodeKind::dram, .capacity = 64_GiB, .cpus = cpus}};
  const std::uint64_t per_cpu = (240_MiB).value;
  machine.caches = {{.level = 3, .size = Bytes{per_cpu * cpus.size()}, .cpus = cpus}};
  machine.provenance["hypervisor"] = "yes";
  const Nanoseconds touched = session::touching(512_MiB, cpus.size());
  const auto check = [&](const session::Experiment& experiment, const auto& is_meant) {
    std::size_t points = 0;
    for (const session::Point& point : experiment.points({machine})) {
      if (!point.row.reason.empty() || !is_meant(point)) continue;
      EXPECT_TRUE(point.row.has_flag("cache_doubted")) << point.row.key();
      EXPECT_FALSE(point.row.has_flag("shrunk")) << point.row.key();
      EXPECT_GE(std::max(point.cost, point.setup.cost), touched) << point.row.key();
      ++points;
    }
    EXPECT_TRUE(points > 0 || cpus.size() < 2) << experiment.name;
  };
  const auto all = [](const session::Point&) { return true; };
  check(experiment_bandwidth::kExperiment, all);
  check(experiment_loaded::kExperiment, all);
  check(experiment_stream::kExperiment, all);
  check(experiment_parallelism::kExperiment, all);
  check(experiment_migrate::kExperiment, all);
  check(experiment_interference::kExperiment, all);
  check(experiment_copy::kExperiment,
        [](const session::Point& point) { return point.row.word("state") == "cold"; });
  check(experiment_latency::kExperiment, [](const session::Point& point) {
    return *point.row.number("bytes") >= (512_MiB).value && point.row.word("window") == "all";
  });
}

}  // namespace
}  // namespace headrace
