// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/interference.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "measure/experiments/experiments.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/probe_testing.h"
#include "tests/support/machines.h"

namespace headrace::experiment_interference {

using namespace session;

namespace {

TEST(Fairness, IsOneForEqualSharesAndOneNthForOne) {
  EXPECT_DOUBLE_EQ(fairness({5, 5, 5}), 1);
  EXPECT_DOUBLE_EQ(fairness({9, 0, 0}), 1.0 / 3);
  EXPECT_DOUBLE_EQ(fairness({3, 1}), 16.0 / 20);
  EXPECT_DOUBLE_EQ(fairness({0, 0}), 1);
}

// Each run has its own rates.
TEST(InterferenceOf, ComparesTheVictimAloneWithItBesideAllAggressors) {
  std::vector<std::pair<bool, std::size_t>> asked;
  const Runs runs{.run = [&](bool victim, std::size_t aggressors) -> Result<SideBySide> {
                    asked.emplace_back(victim, aggressors);
                    if (!victim) return SideBySide{.rates = {50}, .cpu_share = 0.9};
                    if (aggressors == 0) return SideBySide{.rates = {100}, .cpu_share = 0.8};
                    return SideBySide{.rates = {40, 20, 10, 30}, .cpu_share = 0.7};
                  },
                  .huge_part = 0.5};
  const auto bytes = interference_of(runs, {.equal = true}, 3);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(asked, (std::vector<std::pair<bool, std::size_t>>{{true, 0}, {false, 1}, {true, 3}}));
  EXPECT_DOUBLE_EQ(bytes->value, 2.5);
  EXPECT_DOUBLE_EQ(bytes->cpu_share, 0.7);
  EXPECT_EQ(bytes->huge_part, 0.5);
  const std::map<std::string, double> expected = {
      {"alone", 100},          {"together", 40},
      {"aggressor_alone", 50}, {"aggressor_together", 20},
      {"total", 100},          {"fairness", 10'000.0 / (4 * 3'000)}};
  EXPECT_EQ(bytes->details, expected);
  const auto chased = interference_of(runs, {.victim_chases = true, .gives_up_cpu = true}, 3);
  EXPECT_DOUBLE_EQ(chased->value, 2.5);
  EXPECT_DOUBLE_EQ(chased->details.at("alone"), 1e7) << "ns per load";
  EXPECT_DOUBLE_EQ(chased->details.at("together"), 2.5e7);
  EXPECT_DOUBLE_EQ(chased->details.at("aggressor_alone"), 50);
  EXPECT_DOUBLE_EQ(chased->details.at("total"), 40 * 64 + 60) << "bytes";
  EXPECT_FALSE(chased->details.contains("fairness"));
  EXPECT_DOUBLE_EQ(chased->cpu_share, 1);
  const auto chasing = interference_of(runs, {.aggressor_chases = true}, 3);
  EXPECT_DOUBLE_EQ(chasing->details.at("aggressor_alone"), 2e7);
  EXPECT_DOUBLE_EQ(chasing->details.at("aggressor_together"), 5e7);
  EXPECT_DOUBLE_EQ(chasing->details.at("total"), 40 + 60 * 64);
}

TEST(InterferenceTest, EveryPointGivesWhatItsDetailsSay) {
  const Machine machine = test::small_host();
  BufferPool buffers(machine);
  Random random(1);
  const auto points = kExperiment.points({machine, {}, std::filesystem::temp_directory_path()});
  ASSERT_FALSE(points.empty());
  for (const Point& point : points) {
    if (!point.prepare) GTEST_SKIP() << point.row.reason;
    SCOPED_TRACE(point.row.key());
    auto probe = point.prepare(buffers, random);
    if (!probe && probe.error().code == ErrorCode::unsupported) continue;  // no direct I/O
    ASSERT_TRUE(probe) << probe.error().message;
    const auto sample = sample_patiently(**probe);
    ASSERT_TRUE(sample) << sample.error().message;
    const auto& details = sample->details;
    const auto word = [&](const char* name) {
      return std::get<std::string>(*point.row.parameter(name));
    };
    const double ratio = details.at("alone") / details.at("together");
    const bool chases = word("victim").starts_with("chase");
    EXPECT_NEAR(sample->value, chases ? 1 / ratio : ratio, 1e-9);
    EXPECT_EQ(sample->huge_part.has_value(), point.row.parameter("between") != nullptr);
    EXPECT_EQ(details.contains("fairness"), word("victim") == word("aggressor"));
    EXPECT_GT(details.at("total"), 0);
    buffers.clear();
  }
}

TEST(InterferenceTest, TheVictimIsNotOnCpu0WhereThereIsAnother) {
  const Machine machine = test::machine_of({{0, 1}, {2, 3}});
  const AsIfUsable as_if({0, 1, 2, 3});
  std::size_t found = 0;
  for (const Point& point : kExperiment.points({.machine = machine, .here = false})) {
    if (point.row.word("victim") != "read 0" || point.row.word("aggressor") != "copy 0>1") continue;
    EXPECT_EQ(point.row.cpus, "1-2") << "one of each node";
    EXPECT_EQ(std::set(point.others.begin(), point.others.end()), (std::set{NodeId{0}, NodeId{1}}));
    ++found;
  }
  EXPECT_EQ(found, 1U);
}

Machine eight_cpus() { return test::machine_of({{0, 1, 2, 3, 4, 5, 6, 7}}); }

TEST(InterferenceTest, MoreAndMoreAggressorsWhereThatIsACurveOrAskedFor) {
  const Machine machine = eight_cpus();
  const AsIfUsable as_if(machine.nodes.front().cpus);
  const auto counts = [&](const char* victim, const char* aggressor, ParameterChoices only = {}) {
    std::vector<std::uint64_t> found;
    for (const Point& point : kExperiment.points({.machine = machine, .only = only})) {
      if (point.row.word("victim") != victim || point.row.word("aggressor") != aggressor) continue;
      if (point.row.parameter("between") != nullptr) continue;
      found.push_back(*point.row.number("aggressors"));
    }
    return found;
  };
  const std::vector<std::uint64_t> up_to_all = {1, 2, 4, 7};
  EXPECT_EQ(counts("chase 0", "read 0"), up_to_all);
  EXPECT_EQ(counts("read 0", "nt_write 0"), up_to_all);
  EXPECT_EQ(counts("copy 0>0", "copy 0>0"), up_to_all);
  EXPECT_EQ(counts("nt_write 0", "chase 0"), std::vector<std::uint64_t>{1});
  const ParameterChoices some = {
      {"aggressors", std::vector<ParameterValue>{std::uint64_t{3}, std::uint64_t{9}}}};
  EXPECT_EQ(counts("nt_write 0", "chase 0", some), std::vector<std::uint64_t>{3})
      << "there are seven other CPUs";
}

TEST(InterferenceTest, Processes_AreUsedForEqualCopiesByDefault) {
  const Machine machine = eight_cpus();
  const AsIfUsable as_if(machine.nodes.front().cpus);
  const auto by_processes = [&](ParameterChoices only) {
    std::set<std::string> found;
    for (const Point& point : kExperiment.points({.machine = machine, .only = std::move(only)})) {
      const bool processes = point.row.word("between") == "processes";
      EXPECT_TRUE(processes || point.row.parameter("between") == nullptr);
      const auto& compared = point.comparable;
      if (processes) {
        found.insert(fmt::format("{}, {} x {}", point.row.word("victim"),
                                 *point.row.number("aggressors"), point.row.word("aggressor")));
        EXPECT_EQ(compared.detail, "ratio_to_threads");
        EXPECT_FALSE(compared.reference);
      }
      // A point that is not compared is in no group.
      EXPECT_EQ(compared.group.empty(), compared.detail.empty());
    }
    return found;
  };
  const std::set<std::string> usual = {"copy 0>0, 1 x copy 0>0", "copy 0>0, 7 x copy 0>0"};
  EXPECT_EQ(by_processes({}), usual);
  const auto asked = by_processes({{"between", "processes"}});
  EXPECT_TRUE(asked.contains("chase 0, 1 x read 0"));
  EXPECT_TRUE(asked.contains("copy 0>0, 1 x nt_write 0"));
  EXPECT_FALSE(asked.contains("read 0, 1 x chase 0")) << "linking a cycle allocates";
}

TEST(InterferenceTest, AThreadsRowIsTheReferenceOfItsProcesses) {
  const Machine machine = Machine::discover({.storage = {}}).value();
  std::map<std::string, std::vector<const Point*>> groups;
  const auto points = kExperiment.points({.machine = machine});
  for (const Point& point : points) {
    if (!point.comparable.group.empty()) groups[point.comparable.group].push_back(&point);
  }
  for (const auto& [name, both] : groups) {
    ASSERT_EQ(both.size(), 2U) << name;
    EXPECT_TRUE(both[0]->comparable.reference);
    EXPECT_EQ(both[0]->row.cpus, both[1]->row.cpus);
    EXPECT_EQ(both[1]->row.word("between"), "processes");
  }
}

TEST(InterferenceTest, OneCpuIsAReason) {
  Machine machine = Machine::discover().value();
  for (Node& node : machine.nodes) {
    if (node.cpus.size() > 1) node.cpus.resize(1);
  }
  const auto points = kExperiment.points({machine});
  ASSERT_FALSE(points.empty());
  EXPECT_TRUE(std::ranges::any_of(points, [](const Point& point) {
    return point.row.word("victim") == point.row.word("aggressor");
  }));
  for (const Point& point : points) {
    if (point.row.number("cpu_node") == nullptr) continue;
    EXPECT_EQ(point.row.reason, "one CPU cannot do two things at once");
  }
}

}  // namespace
}  // namespace headrace::experiment_interference
