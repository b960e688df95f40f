// SPDX-License-Identifier: Apache-2.0
// Sessions with chosen points, as `headrace bench copy` and the demo run them.
#include "headrace/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "headrace/copy.h"
#include "measure/session/experiment.h"
#include "tests/support/machines.h"
#include "topology/topology.h"

namespace headrace {
namespace {

ParameterValue number(std::uint64_t value) { return value; }

// One round of one repetition: checks which points are measured, not their values.
MeasureOptions smoke(ParameterChoices copies) {
  return {.selections = {{"copy", std::move(copies)}},
          .budget = std::nullopt,
          .rounds = 1,
          .repetitions = 1,
          .noise_checks = false};
}

// Within the first node.
ParameterChoices at_home(ParameterChoices only) {
  const std::uint64_t home = raw(Machine::discover()->nodes.front().id);
  only["from"] = home;
  only["to"] = home;
  return only;
}

std::vector<Row> rows_of(const MeasureOptions& options, const ExperimentContext& context = {}) {
  auto profile = measure(test::small_host(), options, context);
  EXPECT_TRUE(profile) << profile.error().message;
  return std::move(profile->rows);
}

TEST(ChosenPoints, GiveARowPerEngineSizeAndState) {
  const auto rows =
      rows_of(smoke(at_home({{"bytes", std::vector{number(64), number((300_KiB).value)}},
                             {"threads", std::uint64_t{1}}})));
  EXPECT_EQ(rows.size(), 2 * 2 * (copy_kernels().size() + 2));
  for (const Row& row : rows) {
    SCOPED_TRACE(row.key());
    ASSERT_TRUE(row.value) << row.reason;
    EXPECT_GT(row.value->median, 0);
    EXPECT_EQ(row.value->runs, 1U);
    EXPECT_EQ(row.basis, Basis::measured);
    ASSERT_TRUE(row.details.contains("ratio_to_memcpy"));
    if (row.word("engine") == "memcpy") {
      EXPECT_DOUBLE_EQ(row.details.at("ratio_to_memcpy"), 1.0);
    }
  }
}

TEST(ChosenPoints, SayInTheirRowWhatCannotBeMeasured) {
  auto rows = rows_of(smoke(at_home({{"bytes", std::uint64_t{64}},
                                     {"engine", std::vector<ParameterValue>{"memcpy", "mmx"}},
                                     {"state", "cold"},
                                     {"threads", std::uint64_t{1}}})));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0].value);
  EXPECT_FALSE(rows[1].value);
  EXPECT_NE(rows[1].reason.find("no copy engine mmx"), std::string::npos) << rows[1].reason;

  rows = rows_of(smoke(at_home({{"bytes", std::vector{number(64), number(0)}},
                                {"engine", "cpu"},
                                {"state", "hot"},
                                {"threads", std::vector{number(1), number(1000000)}}})));
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_TRUE(rows[0].value) << rows[0].reason;
  EXPECT_FALSE(rows[0].details.contains("ratio_to_memcpy")) << "memcpy did not run";
  EXPECT_NE(rows[1].reason.find("1000000 threads"), std::string::npos) << rows[1].reason;
  EXPECT_NE(rows[2].reason.find("at least one byte"), std::string::npos) << rows[2].reason;
  EXPECT_TRUE(rows[2].has_flag("absent"));
}

TEST(ChosenPoints, OfSeveralSelectionsComeInTheirOrderAndOnce) {
  MeasureOptions options = smoke(at_home({{"engine", "memcpy"},
                                          {"state", "cold"},
                                          {"bytes", std::uint64_t{4096}},
                                          {"threads", std::uint64_t{1}}}));
  options.selections.push_back(options.selections.front());
  options.selections.push_back({"storage", {{"depth", std::uint64_t{1}}}});
  options.directory = "/no/such/directory";
  const auto rows = rows_of(options);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].experiment, "copy");
  EXPECT_EQ(rows[1].experiment, "storage");
  EXPECT_NE(rows[1].reason.find("/no/such/directory"), std::string::npos) << rows[1].reason;
}

struct Refused {
  MeasureOptions options;
  const char* message;
};

const std::vector<Selection> kLatency{{"latency"}};
const Refused kRefused[] = {
    {{.experiments = {"latency", "speed"}}, "no experiment 'speed'; there are latency"},
    {{.selections = {{"speed"}}}, "no experiment 'speed'"},
    {{.rounds = 0}, "no rounds"},
    {{.repetitions = 0}, "no repetitions"},
    {{.budget = std::chrono::milliseconds{10}}, "too small to measure anything"},
    {{.experiments = {"latency"}, .selections = kLatency}, "give them alone"},
    {{.only = {{"order", "random"}}, .selections = kLatency}, "give them alone"},
    {{.only = {{"mix", "reed"}}}, "no point of any experiment has mix=reed; mix is read, "},
    {{.experiments = {"latency"}, .only = {{"bytes", std::uint64_t{7}}}}, "has bytes=7; bytes is "},
    {{.selections = {{"copy", {{"state", "tepid"}}},
                     {"bandwidth", {{"mix", std::vector<ParameterValue>{"reed", "rite"}}}}}},
     "no point of copy has state=tepid or of bandwidth has mix=reed|rite; mix is read, "},
    {{.selections = {{"bandwidth", {{"mix", "reed"}}}, {"copy", {{"state", "tepid"}}}}},
     "; state is cold"},
};

TEST(ChosenPoints, NonsenseIsRefusedWithTheKnownNames) {
  const Machine machine = *Machine::discover();
  for (const Refused& refused : kRefused) {
    SCOPED_TRACE(refused.message);
    const auto profile = measure(machine, refused.options);
    ASSERT_FALSE(profile);
    EXPECT_EQ(profile.error().code, ErrorCode::invalid);
    EXPECT_NE(profile.error().message.find(refused.message), std::string::npos)
        << profile.error().message;
  }
}

TEST(ChosenPoints, ModelledRowsAreNotKnownToAProfile) {
  MeasureOptions options = smoke(at_home({{"engine", "memcpy"},
                                          {"state", "cold"},
                                          {"bytes", std::uint64_t{64}},
                                          {"threads", std::uint64_t{1}}}));
  options.known = rows_of(options);
  ASSERT_EQ(options.known.size(), 1U);
  options.known[0].basis = Basis::modelled;
  const auto rows = rows_of(options);
  EXPECT_EQ(rows.size(), 1U);
  EXPECT_TRUE(
      std::ranges::all_of(rows, [](const Row& row) { return row.basis == Basis::measured; }));
}

// A temporary directory, empty at start and end.
class Directory {
 public:
  Directory() {
    std::string path = (std::filesystem::temp_directory_path() / "headrace-test-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~Directory() {
    EXPECT_TRUE(std::filesystem::is_empty(path_)) << "a measuring file was left behind";
    std::filesystem::remove_all(path_);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(QuickSession, GivesRowsForMemoryAndDiskAndRatesForBoth) {
  const Directory directory;
  const Machine machine = test::small_host(1_GiB, {.storage = {directory.path()}});
  std::size_t last = 0;
  const ExperimentContext context{.progress = [&](std::size_t done, std::size_t) { last = done; }};
  const auto profile = measure(machine, quick_session(machine, directory.path()), context);
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_GT(last, 0U);
  std::set<std::string> measured;
  for (const Row& row : profile->rows) {
    EXPECT_NE(row.value.has_value(), !row.reason.empty()) << row.key();
    if (row.value) measured.insert(row.experiment);
  }
  EXPECT_TRUE(measured.contains("bandwidth") && measured.contains("copy"));
  ASSERT_FALSE(profile->machine.copy_rates.empty());
  for (const CopyRate& rate : profile->machine.copy_rates) {
    EXPECT_GT(rate.bandwidth.value, 0);
    EXPECT_GE(rate.latency, Nanoseconds{0});
  }
  for (const Node& node : profile->machine.nodes) {
    if (!node.byte_addressable() || !node.capacity) continue;
    const auto found = std::ranges::find(node.access, true, &AccessAttributes::measured);
    ASSERT_NE(found, node.access.end());
    EXPECT_GT(found->read_bandwidth->value, 0);
  }
}

// The number of measured points per experiment.
std::map<std::string, std::size_t> measured(const std::vector<PlannedPoint>& points) {
  std::map<std::string, std::size_t> by_experiment;
  for (const PlannedPoint& point : points) {
    EXPECT_EQ(point.row.reason.empty(), point.time > Nanoseconds{0}) << point.row.key();
    if (point.row.reason.empty()) ++by_experiment[point.row.experiment];
  }
  return by_experiment;
}

constexpr const char* kOfMemory[] = {"latency", "bandwidth", "loaded", "stream", "copy", "migrate"};

// 16 CPUs per node; each core has its own caches, and eight cores share one more.
Machine made_up_machine(unsigned nodes) {
  Machine machine{.name = "made up"};
  for (unsigned id = 0; id < nodes; ++id) {
    Node node{.id = NodeId{id}, .kind = NodeKind::dram, .capacity = 64_GiB};
    node.socket = id / 8;
    for (unsigned i = 0; i < 16; ++i) node.cpus.push_back(16 * id + i);
    for (unsigned i = 0; i < 16; i += 2) {
      const CpuSet core{16 * id + i, 16 * id + i + 1};
      machine.caches.push_back({.level = 1, .size = 48_KiB, .cpus = core});
      machine.caches.push_back({.level = 2, .size = 2_MiB, .cpus = core});
    }
    machine.caches.push_back({.level = 3, .size = 32_MiB, .cpus = node.cpus});
    machine.nodes.push_back(std::move(node));
  }
  return machine;
}

// The caches of a CPU were searched for at each point, in the whole machine: minutes on 1024 CPUs.
TEST(PlanSession, APlanSearchesForNoCaches) {
  const Machine machine = made_up_machine(4);
  const std::uint64_t before = MachineTables::searches();
  const auto points = plan_session(machine);
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_LE(MachineTables::searches(), before + 4 * machine.nodes.size());
  const auto counts = measured(*points);
  for (const char* experiment : kOfMemory) EXPECT_GT(counts.at(experiment), 3u);
}

TEST(PlanSession, ASmallMachineWithALittleMemoryIsMeasured) {
  Machine machine = test::machine_of({{0, 1}}, 0, 512_MiB);
  machine.caches = {{.level = 3, .size = 480_MiB, .cpus = {0, 1}}};
  machine.provenance["hypervisor"] = "yes";
  const auto points = *plan_session(machine);
  for (const PlannedPoint& point : points) {
    if (point.row.experiment != "stream") continue;
    EXPECT_EQ(point.row.reason, "");
    EXPECT_TRUE(point.row.has_flag("shrunk") && point.row.has_flag("cache_doubted"));
  }
  EXPECT_GT(measured(points).at("stream"), 3u);
  EXPECT_FALSE(plan_session(machine, {.experiments = {"speed"}}));
}

// HBM in cache mode, on a machine of one socket.
Machine cached_machine(Bytes memory, Bytes side_cache) {
  Machine machine = test::machine_of({{0, 1, 2, 3}}, 0, memory);
  machine.nodes[0].side_cache = MemorySideCache{.size = side_cache};
  machine.caches = {{.level = 3, .size = 32_MiB, .cpus = {0, 1, 2, 3}}};
  return machine;
}

// The experiments with points; expects each point that uses memory to be marked.
std::set<std::string> marked_in(const Machine& machine, bool of_teams) {
  std::set<std::string> marked;
  const auto points = *plan_session(machine);
  for (const PlannedPoint& point : points) {
    const Row& row = point.row;
    if (!row.reason.empty() && !row.has_flag("left_out")) continue;
    if (row.experiment == "core_to_core") continue;  // it uses no memory
    if (of_teams && row.parameter("on") == nullptr && row.experiment != "migrate") continue;
    EXPECT_TRUE(row.has_flag("side_cached")) << row.key();
    marked.insert(row.experiment);
  }
  return marked;
}

TEST(PlanSession, WhatASideCacheHoldsIsSaid) {
  const auto marked = marked_in(cached_machine(512_GiB, 64_GiB), false);
  for (const char* const name :
       {"latency", "bandwidth", "loaded", "stream", "copy", "interference", "parallelism"}) {
    EXPECT_TRUE(marked.contains(name)) << name;
  }
  Machine machine = cached_machine(512_GiB, 64_GiB);
  machine.nodes.push_back(machine.nodes[0]);
  machine.nodes[1].id = NodeId{1};
  machine.nodes[1].cpus = {4, 5, 6, 7};
  for (const unsigned node : {0U, 1U}) {
    machine.nodes[node].socket = node;
    machine.nodes[node].distances = {{NodeId{node}, 10}, {NodeId{1 - node}, 21}};
  }
  EXPECT_EQ(marked_in(machine, true), (std::set<std::string>{"bandwidth", "migrate", "stream"}));
  const auto passed = *plan_session(cached_machine(512_GiB, 1_MiB));
  for (const PlannedPoint& point : passed) {
    const auto* const bytes = point.row.number("bytes");
    if (bytes != nullptr && *bytes <= (1_MiB).value) continue;
    EXPECT_FALSE(point.row.has_flag("side_cached")) << point.row.key();
  }
}

TEST(PlanSession, MemoryBehindASideCacheIsChasedWhenAskedFor) {
  const auto behind = [](Bytes bytes) {
    return *plan_session(
        cached_machine(512_GiB, 64_GiB),
        {.experiments = {"latency"}, .only = {{"bytes", bytes.value}}, .budget = std::nullopt});
  };
  const auto points = behind(128_GiB);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].row.reason, "");
  EXPECT_EQ(points[0].row.word("window"), "all");
  EXPECT_FALSE(points[0].row.has_flag("side_cached"));
  EXPECT_GT(points[0].time, std::chrono::seconds{60}) << "linking the lines";
  EXPECT_TRUE(behind(64_GiB)[0].row.has_flag("side_cached"));
  EXPECT_NE(behind(257_GiB)[0].row.reason.find("at most 256 GiB"), std::string::npos);
}

}  // namespace
}  // namespace headrace
