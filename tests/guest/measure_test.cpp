// Sixteen nodes of which no table says how fast they are, and 2 CPUs on some: what discovery makes
// of them, and what is measured there. Run by run_tests.sh in the guest plain; HBM in cache mode
// in the guest slow.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <map>

#include "guest/guest_testing.h"

namespace headrace {
namespace {

using namespace test;

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
    const auto profile = measure(machine(), {.selections = {selection},
                                             .budget = std::nullopt,
                                             .rounds = 1,
                                             .repetitions = 1,
                                             .noise_checks = false});
    ASSERT_TRUE(profile) << selection.experiment << ": " << profile.error().message;
    EXPECT_FALSE(profile->rows.empty()) << selection.experiment;
    for (const Row& row : profile->rows) {
      EXPECT_TRUE(row.value) << row.key() << ": " << row.reason;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << fmt::format("  {}: {} rows in {:.1f} s\n", selection.experiment,
                             profile->rows.size(), took.count());
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
