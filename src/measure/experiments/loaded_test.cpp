// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/experiments/experiments.h"
#include "measure/experiments/idle_cycle.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/probe_testing.h"
#include "measure/session/session.h"
#include "tests/support/machines.h"

namespace headrace::experiment_loaded {

using namespace session;

namespace {

// A counter that advances by many bytes per reading, so that an observer's loads hardly count.
class Steps final : public BusCounter {
 public:
  static constexpr double kStep = 1e18;
  Result<double> bytes() override { return at_ += kStep; }
  const std::string& words() const override { return words_; }
  bool counts(const Node&) const override { return true; }

 private:
  const std::string words_ = "steps";
  double at_ = 0;
};

TEST(LoadedTest, APointGivesPercentilesAndWhatTheTrafficReached) {
  const Machine machine = test::small_host();
  BufferPool buffers(machine);
  Random random(1);
  const auto bus = std::make_shared<BusMeter>(std::make_unique<Steps>());
  {
    const BusMeter::Window first(*bus);
    (void)first.bytes();
  }  // a counter's first reading is skipped
  const auto points = kExperiment.points({.machine = machine, .bus = bus});
  ASSERT_FALSE(points.empty());
  for (const std::size_t i : {std::size_t{0}, points.size() - 1}) {
    if (!points[i].row.reason.empty()) GTEST_SKIP() << points[i].row.reason;
    const auto probe = points[i].prepare(buffers, random);
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    const auto sample = sample_patiently(**probe);
    ASSERT_TRUE(sample.has_value()) << sample.error().message;
    EXPECT_GE(sample->value, 0.45 * sample->details.at("p50")) << "half of them took that long";
    // bus_counted is the step divided by the bytes that the traffic moved, times its rate.
    const double rate = sample->details.at("bandwidth");
    const double moved = Steps::kStep * rate / sample->details.at("bus_counted");
    EXPECT_NEAR(std::remainder(moved, 1024), 0, 1) << "the traffic's alone, KiB by KiB";
    EXPECT_LE(rate, moved / 0.03 * 1.001) << "a window is 30 ms at least";
    const Mix& mix = *find_mix(points[i].row.word("mix"));
    EXPECT_DOUBLE_EQ(sample->details.at("bus"), rate * mix.bus_factor());
    EXPECT_GT(sample->details.at("idle"), 0);
    EXPECT_EQ(sample->details.at("delay_ns") > 0, i > 0) << "the last has a percent of the load";
    EXPECT_GE(sample->details.at("drift"), 0);
    const auto cpus = usable_cpus(&machine.nodes.front());
    const unsigned observer = observer_of(machine, cpus);
    EXPECT_EQ(sample->words.at("observer"), "CPU " + std::to_string(observer));
    EXPECT_FALSE(sample->words.at("kernel").empty());
    EXPECT_EQ(sample->words.at("traffic").find("CPUs "), 0u);
    EXPECT_LE(sample->details.at("p50"), sample->details.at("p90"));
    EXPECT_LE(sample->details.at("p90"), sample->details.at("p99"));
    EXPECT_LE(sample->details.at("p99"), sample->details.at("p999"));
  }
}

TEST(LoadedTest, ThreadsPausesAndMixesAreThoseAskedFor) {
  const Machine machine = Machine::load("xeon-max").value();
  const AsIfUsable as_if(machine.nodes.front().cpus);
  const ParameterChoices home = {{"cpu_node", std::uint64_t{0}}, {"memory_node", std::uint64_t{0}}};
  const auto rows = [&](ParameterChoices only) {
    only.insert(home.begin(), home.end());
    std::vector<Row> found;
    for (const Point& point : kExperiment.points({machine, only})) {
      if (point.row.number("traffic_memory_node") == point.row.number("memory_node") ||
          *point.row.number("traffic_memory_node") == 0) {
        if (*point.row.number("traffic_cpu_node") == 0) found.push_back(point.row);
      }
    }
    return found;
  };
  const auto curve = rows({{"mix", "read"}});
  ASSERT_EQ(curve.size(), 12U);
  EXPECT_EQ(*curve.front().number("load_percent"), 100U);
  EXPECT_EQ(*curve.back().number("load_percent"), 1U);
  EXPECT_EQ(curve.front().number("threads"), nullptr);
  EXPECT_EQ(rows({{"mix", "nt_2:1"}}).size(), 12U) << "any mix that there is";
  const auto paused = rows({{"mix", "read"}, {"delay_ns", std::uint64_t{700}}});
  ASSERT_EQ(paused.size(), 1U);
  EXPECT_EQ(*paused.front().number("delay_ns"), 700U);
  EXPECT_EQ(paused.front().number("load_percent"), nullptr);
  const auto few = rows({{"mix", "read"}, {"threads", std::uint64_t{3}}});
  ASSERT_EQ(few.size(), 12U);
  EXPECT_EQ(*few.front().number("threads"), 3U);
  EXPECT_EQ(few.front().cpus, "0-3") << few.front().reason;
  for (const std::uint64_t wrong : {0, 400}) {
    const auto none = rows({{"mix", "read"}, {"threads", wrong}});
    ASSERT_FALSE(none.empty());
    EXPECT_NE(none.front().reason.find("threads are no traffic here; give 1 to "),
              std::string::npos)
        << none.front().reason;
  }
}

std::map<std::string, std::size_t> points_by_mix(bool budget) {
  const Machine machine = Machine::load("xeon-max").value();
  const AsIfUsable as_if(machine.nodes.front().cpus);
  std::map<std::string, std::size_t> found;
  for (const Point& point : kExperiment.points({.machine = machine, .budget = budget})) {
    const bool apart = point.row.number("memory_node") == nullptr ||
                       *point.row.number("memory_node") != 8 ||
                       *point.row.number("traffic_memory_node") != 8;
    if (!apart) ++found[std::string(point.row.word("mix"))];
  }
  return found;
}

// For memory near the observer, here node 8; only the usual curves have all points.
TEST(LoadedTest, WithoutABudgetThereIsAFamilyOfCurves) {
  EXPECT_EQ(points_by_mix(true), (std::map<std::string, std::size_t>{
                                     {"read", 12}, {"2:1", 12}, {"1:1", 12}, {"nt_write", 12}}));
  const auto family = points_by_mix(false);
  EXPECT_EQ(family.size(), 22U);
  std::size_t around = 0;
  for (const auto& [mix, points] : family) {
    const bool usual = mix == "read" || mix == "2:1" || mix == "1:1" || mix == "nt_write";
    EXPECT_EQ(points, usual ? 12U : 8U) << mix;
    around += mix.starts_with("nt_");
  }
  EXPECT_EQ(around, 10U);
}

TEST(LoadedTest, ARowSaysHowLargeTheCycleIsAndWhatEachThreadWalksOver) {
  const Machine machine = Machine::load("xeon-max").value();
  const AsIfUsable as_if(machine.nodes.front().cpus);
  const Row row = kExperiment.points({machine}).front().row;
  ASSERT_EQ(row.reason, "");
  const Node& node = machine.nodes.front();
  CpuSet loading = parse_cpu_list(row.cpus).value();
  const unsigned observer = observer_of(machine, loading);
  std::erase(loading, observer);
  Row marked;
  EXPECT_EQ(
      row.details.at("chased_bytes"),
      static_cast<double>(fit(marked, node, idle_cycle_bytes(marked, machine, observer)).value));
  const Bytes moved = fit(marked, node, past_caches(marked, machine, loading, 4, 64_MiB));
  EXPECT_NEAR(row.details.at("traffic_bytes") * static_cast<double>(loading.size()),
              static_cast<double>(moved.value), 4096.0 * static_cast<double>(loading.size()));
}

// Otherwise drift of the machine would look like an effect of the load: returns the points of each
// round, by share.
std::vector<std::vector<std::uint64_t>> rounds_of_a_curve(std::uint64_t seed,
                                                          std::optional<Nanoseconds> budget) {
  class Nothing final : public Probe {
    Result<Sample> sample() override { return Sample{.value = 1}; }
  };
  const Machine machine = Machine::load("xeon-max").value();
  const AsIfUsable as_if(machine.nodes.front().cpus);
  const ParameterChoices curve = {{"cpu_node", std::uint64_t{0}},
                                  {"memory_node", std::uint64_t{0}},
                                  {"traffic_memory_node", std::uint64_t{0}},
                                  {"mix", "read"}};
  std::vector<std::uint64_t> seen;
  std::vector<Point> points;
  const Scope scope{.machine = machine, .only = curve, .here = false};
  for (Point& point : kExperiment.points(scope)) {
    if (!scope.wants(point.row, kExperiment.parameters)) continue;
    const std::uint64_t share = *point.row.number("load_percent");
    point.cost = std::chrono::microseconds{1};
    point.setup = {};
    point.races.clear();
    point.prepare = [&seen, share](BufferPool&, Random&) -> Result<std::unique_ptr<Probe>> {
      seen.push_back(share);
      return std::make_unique<Nothing>();
    };
    points.push_back(std::move(point));
  }
  const std::size_t each = points.size();
  const MeasureOptions options{.budget = budget, .seed = seed, .rounds = 4};
  run_session(machine, std::move(points), {}, options, {});
  std::vector<std::vector<std::uint64_t>> rounds;
  for (std::size_t at = 0; at + each <= seen.size(); at += each) {
    const auto first = seen.begin() + static_cast<std::ptrdiff_t>(at);
    rounds.emplace_back(first, first + static_cast<std::ptrdiff_t>(each));
  }
  return rounds;
}

TEST(LoadedTest, PointsOfACurveComeInAnOrderOfTheSeedDrawnAnewInEachRound) {
  for (const auto& budget : {std::optional<Nanoseconds>{}, {std::chrono::minutes{10}}}) {
    const auto rounds = rounds_of_a_curve(1, budget);
    ASSERT_EQ(rounds.size(), 4U);
    for (const auto& round : rounds) {
      EXPECT_EQ(round.size(), 12U);
      EXPECT_FALSE(std::ranges::is_sorted(round, std::greater{})) << "as they are listed";
    }
    EXPECT_NE(rounds[0], rounds[1]);
    EXPECT_NE(rounds[1], rounds[2]);
    EXPECT_NE(rounds[2], rounds[3]);
    EXPECT_EQ(rounds, rounds_of_a_curve(1, budget));
    EXPECT_NE(rounds, rounds_of_a_curve(2, budget));
  }
}

TEST(LoadedTest, OneCpuIsAReason) {
  Machine machine = Machine::discover().value();
  for (Node& node : machine.nodes) {
    if (node.cpus.size() > 1) node.cpus.resize(1);
  }
  for (const Point& point : kExperiment.points({machine})) {
    EXPECT_EQ(point.row.reason, "one CPU cannot observe and load at once");
  }
}

}  // namespace
}  // namespace headrace::experiment_loaded
