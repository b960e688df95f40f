// SPDX-License-Identifier: Apache-2.0
// Measuring on sixteen nodes. In the guest xeon-max each node has one CPU; in the guest plain some
// have two, and no table says how fast nodes are. HBM in cache mode in the guest slow. Run by
// run_tests.sh.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <set>

#include "guest/guest_testing.h"

namespace headrace {
namespace {

using namespace test;

// Nodes with a CPU, each of which is measured with all 16 nodes: one on each socket.
std::vector<ParameterValue> measured_cpu_nodes() {
  std::vector<ParameterValue> nodes;
  for (std::uint64_t node = 0; node < 8; node += everything() ? 1 : 5) nodes.emplace_back(node);
  return nodes;
}

// The rows of one round. The numbers mean nothing under emulation.
Profile measured(std::vector<Selection> selections, std::optional<Nanoseconds> budget = {}) {
  auto profile = measure(machine(), {.selections = std::move(selections),
                                     .budget = budget,
                                     .rounds = 1,
                                     .repetitions = 1,
                                     .noise_checks = false});
  if (!profile) {
    ADD_FAILURE() << profile.error().message;
    return {};
  }
  EXPECT_FALSE(profile->rows.empty());
  for (const Row& row : profile->rows) EXPECT_TRUE(row.value) << row.key() << ": " << row.reason;
  return *std::move(profile);
}

// On pages that stayed in place; each node has one CPU.
TEST(XeonMax, MeasuresLatencyAndReadBandwidthOfEveryPair) {
  const std::vector<ParameterValue> cpu_nodes = measured_cpu_nodes();
  for (const Selection& selection :
       {Selection{"latency", {{"cpu_node", cpu_nodes}, {"window", "all"}, {"pages", "huge"}}},
        {"bandwidth", {{"cpu_node", cpu_nodes}, {"mix", "read"}, {"threads", std::uint64_t{1}}}}}) {
    const Profile profile = measured({selection});
    std::set<std::pair<std::uint64_t, std::uint64_t>> pairs;
    for (const Row& row : profile.rows) {
      pairs.emplace(*row.number("cpu_node"), *row.number("memory_node"));
    }
    EXPECT_EQ(pairs.size(), cpu_nodes.size() * 16) << selection.experiment;
    if (selection.experiment != "latency") continue;
    for (const Node& node : profile.machine.nodes) {
      if (!node.byte_addressable()) continue;
      EXPECT_EQ(std::ranges::count(node.access, true, &AccessAttributes::measured),
                std::ssize(cpu_nodes))
          << raw(node.id);
    }
  }
}

// Reasons that a row without a number may give although nothing went wrong: it was stopped before,
// or this guest lacks CPUs, a disk, a DSA device or a GPU.
bool is_expected(const Row& row) {
  return row.value || row.reason.starts_with("stopped") ||
         row.reason.starts_with("one CPU cannot") || row.reason.starts_with("no disk") ||
         row.reason.starts_with("no DSA device") || row.reason.starts_with("no libcuda") ||
         row.reason.find("too small") != std::string::npos;
}

TEST(XeonMax, StreamsOverArraysOnEveryNode) {
  if (!everything()) GTEST_SKIP() << "only with --all";
  const auto profile = measure(machine(),
                               {.experiments = {"stream"},
                                .only = {{"cpu_node", std::uint64_t{1}},
                                         {"a", std::uint64_t{9}},
                                         {"b", "dram"},
                                         {"c", "hbm"}},
                                .budget = std::nullopt,
                                .width = 1},
                               measuring_times(32));
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  EXPECT_EQ(profile->rows.size(), 4u * 8 * 8);
  for (const Row& row : profile->rows) {
    EXPECT_TRUE(is_expected(row)) << row.key() << ": " << row.reason;
  }
}

// All eight tiles at once, each in its own memory (the pool looks where the pages are), in that of
// the other socket, and in all memory in turn; without --all in HBM only, and a socket's tiles in
// the memory of the other alone.
TEST(XeonMax, MeasuresTheWholeMachineAndASocket) {
  ParameterChoices machine{{"on", "machine"}, {"mix", "read"}};
  ParameterChoices socket{{"on", "socket"}, {"mix", "read"}};
  ParameterChoices stream{{"on", "machine"}, {"placed", "near"}, {"kernel", "triad"}};
  if (!everything()) {
    machine["memory_node"] = "8-15";
    socket.insert({{"memory_node", "12-15"}, {"placed", "far"}});
    stream.insert({{"a", "8-15"}, {"b", "0-7"}, {"c", "8-15"}});
  }
  // With a budget one number of threads is planned; without, every point that is chosen here.
  std::optional<Nanoseconds> budget;
  if (everything()) budget = std::chrono::minutes{5};
  const Profile profile =
      measured({{"bandwidth", machine}, {"bandwidth", socket}, {"stream", stream}}, budget);
  std::set<std::string> cpus;
  for (const Row& row : profile.rows) cpus.insert(row.cpus);
  EXPECT_EQ(cpus, (std::set<std::string>{"0-7", "0-3"}));
  // Parts, places, kinds; kinds of three arrays.
  EXPECT_EQ(profile.rows.size(), everything() ? 2u * 3 * 2 + 8 : 3u + 1 + 1);
}

TEST(XeonMax, AWholeMeasurementHasNoErrors) {
  if (!everything()) GTEST_SKIP() << "only with --all";
  const auto profile =
      measure(machine(), {.budget = std::nullopt, .width = 1}, measuring_times(40));
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  std::map<std::string, std::size_t> measured;
  for (const Row& row : profile->rows) {
    EXPECT_TRUE(is_expected(row)) << row.key() << ": " << row.reason;
    if (row.value) ++measured[row.experiment];
  }
  // In its first 40 measurements: what is of rank 0.
  EXPECT_GT(measured["latency"], 0u);
  EXPECT_LT(profile->to_json().size(), std::size_t{32} << 20) << "a profile that can be read again";
}

// The experiment itself checks that no byte and no write of a concurrent thread is lost. Small
// pages: a node of this size may have no huge one in one piece.
TEST(XeonMax, MigratesUnderAWriterByEveryMethod) {
  const Profile profile = measured({{"migrate",
                                     {{"from", std::uint64_t{1}},
                                      {"to", std::uint64_t{9}},
                                      {"pages", "base"},
                                      {"bytes", (1_MiB).value}}}});
  std::set<std::string> methods;
  for (const Row& row : profile.rows) {
    if (!row.value) continue;
    EXPECT_EQ(row.details.at("stayed"), 0) << row.key();
    EXPECT_GT(row.details.at("copy_share"), 0) << row.key();
    methods.insert(std::get<std::string>(*row.parameter("method")));
  }
  EXPECT_EQ(methods, (std::set<std::string>{"copy", "mbind", "move_pages", "remap"}));
}

TEST(Plain, KindsAreToldWithoutHmat) {
  const std::map<unsigned, CpuSet> cpus = {{0, {0, 1}}, {1, {2}}, {2, {3}}, {3, {4}},
                                           {4, {5, 6}}, {5, {7}}, {6, {8}}, {7, {9}}};
  ASSERT_EQ(machine().nodes.size(), 16U);
  for (const Node& node : machine().nodes) {
    const unsigned id = raw(node.id);
    EXPECT_EQ(node.kind, id < 8 ? NodeKind::dram : NodeKind::hbm) << id << ": " << node.reason;
    EXPECT_EQ(node.cpus, id < 8 ? cpus.at(id) : CpuSet{}) << id;
    EXPECT_TRUE(node.access.empty()) << id;
    EXPECT_EQ(node.distances.at(NodeId{(id + 8) % 16}), 13U) << id;
    EXPECT_EQ(node.socket, id % 8 / 4) << id;
    EXPECT_FALSE(node.side_cache) << id;
    EXPECT_EQ(node.reason.find("CPU Max 9468 carries HBM") != std::string::npos, id >= 8) << id;
  }
  ASSERT_EQ(machine().warnings.size(), 1U);
  EXPECT_TRUE(machine().warnings[0].starts_with("no HMAT: ")) << machine().warnings[0];
  EXPECT_EQ(machine().warnings[0].find("SLIT"), std::string::npos) << machine().warnings[0];
}

TEST(Plain, OverridesCountMore) {
  const auto other = Machine::discover({.storage = {}, .headrace_nodes = "8-11=cxl,0=hbm"});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->of_kind(NodeKind::cxl).size(), 4U);
  EXPECT_EQ(other->of_kind(NodeKind::hbm).size(), 5U);
  EXPECT_EQ(other->find(NodeId{8})->reason, "HEADRACE_NODES says so");
}

ParameterChoice nodes(std::initializer_list<std::uint64_t> ids) {
  return std::vector<ParameterValue>(ids.begin(), ids.end());
}

ParameterChoice words(std::initializer_list<const char*> all) {
  std::vector<ParameterValue> values;
  for (const char* const word : all) values.emplace_back(std::string(word));
  return values;
}

ParameterChoice count(std::uint64_t number) { return number; }

// Some points of every experiment that needs neither a disk nor a device, on nodes of both kinds
// and sockets, with all CPUs of nodes that have two, of sockets and of the machine.
std::vector<Selection> all_selections() {
  const ParameterChoice all = words({"near", "interleave", "far"});
  return {
      {"latency",
       {{"cpu_node", nodes({0, 5})},
        {"memory_node", nodes({0, 15})},
        {"window", "all"},
        {"pages", "base"}}},
      {"bandwidth",
       {{"cpu_node", nodes({4})},
        {"memory_node", nodes({3, 12})},
        {"mix", "read"},
        {"threads", count(2)}}},
      {"bandwidth",
       {{"on", "machine"},
        {"memory_node", words({"0-7", "4-7"})},
        {"mix", "read"},
        {"placed", all}}},
      {"bandwidth", {{"on", "socket"}, {"mix", "nt_write"}, {"placed", "far"}}},
      {"stream",
       {{"on", words({"socket", "machine"})},
        {"kernel", "triad"},
        {"a", words({"8-15", "8-11"})},
        {"b", words({"0-7", "0-3"})},
        {"placed", "near"},
        {"threads", nodes({5, 10})}}},
      // Traffic of the observer's own node and of the other socket.
      {"loaded",
       {{"cpu_node", nodes({0})},
        {"memory_node", nodes({0})},
        {"traffic_cpu_node", nodes({0, 4})},
        {"traffic_memory_node", nodes({0})},
        {"mix", "read"},
        {"load_percent", nodes({50, 100})}}},
      {"interference",
       {{"cpu_node", nodes({0})},
        {"victim", words({"chase 0", "read 0", "copy 0>0"})},
        {"aggressor", words({"read 0", "copy 0>0", "copy 0>8"})},
        {"aggressor_cpu_node", nodes({0, 4})}}},
      {"copy",
       {{"engine", words({"memcpy", "cpu"})},
        {"from", nodes({0, 9})},
        {"to", nodes({4, 12})},
        {"bytes", nodes({4096, 1 << 20})},
        {"threads", nodes({1, 2})}}},
      {"migrate",
       {{"from", nodes({0})},
        {"to", nodes({12})},
        {"pages", "base"},
        {"bytes", count((1_MiB).value)}}},
      {"split",
       {{"cpu_node", nodes({4})},
        {"memory_node", nodes({4})},
        {"other_memory_node", nodes({12})},
        {"ratio", words({"1:0", "1:1", "0:1"})}}},
      {"parallelism",
       {{"cpu_node", nodes({0})}, {"memory_node", nodes({0, 15})}, {"chains", nodes({1, 8})}}},
      {"core_to_core", {{"cpu", nodes({0})}, {"other_cpu", nodes({1, 2, 6})}}},
  };
}

// Without a budget: of a guest's seconds none may decide what is measured.
TEST(Plain, NoExperimentHasAnErrorRow) {
  for (const Selection& selection : all_selections()) {
    const auto begin = std::chrono::steady_clock::now();
    const Profile profile = measured({selection});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << fmt::format("  {}: {} rows in {:.1f} s\n", selection.experiment,
                             profile.rows.size(), took.count());
  }
}

TEST(SlowCached, HbmInCacheModeIsNoNode) {
  const auto& cache = machine().find(NodeId{0})->side_cache;
  ASSERT_TRUE(cache);
  EXPECT_EQ(cache->size, 256_MiB);
  EXPECT_EQ(cache->line, 64_B);
  EXPECT_EQ(cache->indexing, "direct-mapped");
  EXPECT_EQ(cache->write_policy, "write-back");
  EXPECT_FALSE(machine().find(NodeId{1})->side_cache);
  const auto refused = allocate(machine(), 1_MiB, Placement::on(NodeKind::hbm));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("HBM is in cache mode: 256 MiB before node 0"),
            std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace headrace
