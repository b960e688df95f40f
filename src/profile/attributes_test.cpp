// SPDX-License-Identifier: Apache-2.0
#include "profile/attributes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headrace {
namespace {

Row bandwidth(std::uint64_t threads, std::optional<double> value,
              std::vector<std::string> flags = {}) {
  Row row{.experiment = "bandwidth",
          .parameters = {{"cpu_node", std::uint64_t{0}},
                         {"memory_node", std::uint64_t{8}},
                         {"mix", "read"},
                         {"threads", threads}},
          .flags = std::move(flags)};
  if (value) row.value = summarize(std::vector{*value});
  return row;
}

Row latency(std::uint64_t bytes, double value, const char* pages = "huge") {
  Row row{.experiment = "latency",
          .parameters = {{"cpu_node", std::uint64_t{0}},
                         {"memory_node", std::uint64_t{8}},
                         {"bytes", bytes},
                         {"window", "all"},
                         {"pages", pages}}};
  row.value = summarize(std::vector{value});
  return row;
}

// Node 8's attributes for node 0 after the rows are entered.
const AccessAttributes* learned(Profile& profile, std::vector<Row> rows) {
  profile.rows = std::move(rows);
  put_into_machine(profile);
  const Node* node = profile.machine.find(NodeId{8});
  const auto found = std::ranges::find(node->access, true, &AccessAttributes::measured);
  return found == node->access.end() ? nullptr : &*found;
}

class AttributesTest : public testing::Test {
 protected:
  void SetUp() override { profile_.machine = Machine::load("xeon-max").value(); }
  Profile profile_;
};

TEST_F(AttributesTest, TheBestTeamCountsIfTheLargestWasMeasured) {
  const auto* access =
      learned(profile_, {bandwidth(1, 10e9), bandwidth(8, 70e9), bandwidth(12, 60e9)});
  ASSERT_NE(access, nullptr);
  EXPECT_EQ(access->read_bandwidth->value, 70e9);
  EXPECT_EQ(learned(profile_, {bandwidth(1, 10e9), bandwidth(12, {})}), access)
      << "one thread is not the node: what was known stays";
  EXPECT_EQ(access->read_bandwidth->value, 70e9);
}

TEST_F(AttributesTest, RandomAccess_IsNotTheBandwidth) {
  Row random = bandwidth(12, 20e9);
  random.parameters.emplace_back("pattern", std::string("random"));
  EXPECT_EQ(learned(profile_, {random}), nullptr);
  EXPECT_EQ(learned(profile_, {bandwidth(12, 10e9), random})->read_bandwidth->value, 10e9);
}

TEST_F(AttributesTest, AQuietRowCountsMoreThanANoisyOne) {
  EXPECT_EQ(learned(profile_, {bandwidth(8, 90e9, {"noisy"}), bandwidth(12, 60e9)})
                ->read_bandwidth->value,
            60e9);
  EXPECT_EQ(learned(profile_, {bandwidth(12, 60e9, {"noisy"})})->read_bandwidth->value, 60e9);
}

TEST_F(AttributesTest, RowWithSimilarPairs_CountsForThem) {
  Row row = bandwidth(12, 60e9);
  row.stands_for = {"cpu_node=3 memory_node=11", "cpu_node=99 memory_node=99", "nonsense ="};
  ASSERT_NE(learned(profile_, {row}), nullptr);
  const Node* alike = profile_.machine.find(NodeId{11});
  const auto found = std::ranges::find(alike->access, true, &AccessAttributes::measured);
  ASSERT_NE(found, alike->access.end());
  EXPECT_EQ(found->initiator, NodeId{3});
  EXPECT_EQ(found->read_bandwidth->value, 60e9);
}

TEST_F(AttributesTest, WorkingSetInACache_IsNoLatency) {
  EXPECT_EQ(learned(profile_, {latency(1 << 20, 5)}), nullptr);
  const auto* access = learned(
      profile_, {latency(1 << 20, 5), latency(1ULL << 32, 110), latency(1ULL << 32, 150, "base")});
  ASSERT_NE(access, nullptr);
  EXPECT_EQ(access->read_latency, Nanoseconds{110});
}

TEST_F(AttributesTest, TheLinesOfTheMoversEngineBecomeCopyRates) {
  std::vector<Row> rows;
  for (const std::uint64_t threads : {1, 12}) {
    for (const std::uint64_t bytes : {1 << 16, 1 << 20, 1 << 26}) {
      Row row{.experiment = "copy",
              .parameters = {{"engine", "cpu"},
                             {"cpu_node", std::uint64_t{0}},
                             {"from", std::uint64_t{0}},
                             {"to", std::uint64_t{8}},
                             {"bytes", bytes},
                             {"threads", threads},
                             {"state", "cold"}}};
      row.value = summarize(std::vector{static_cast<double>(threads) * 5e9});
      rows.push_back(std::move(row));
    }
  }
  profile_.machine.copy_rates.clear();
  for (int twice = 0; twice < 2; ++twice) learned(profile_, rows);
  ASSERT_EQ(profile_.machine.copy_rates.size(), 1u);
  const CopyRate& rate = profile_.machine.copy_rates[0];
  EXPECT_EQ(profile_.machine.find(rate.engine)->home, NodeId{0});
  EXPECT_NEAR(rate.bandwidth.value / 60e9, 1, 1e-9) << "of all its cores";
}

// CPUs 48 to 59 belong to node 4.
TEST_F(AttributesTest, ADiskIsReadIntoTheMemoryOfTheCpusThatReadIt) {
  Machine& machine = profile_.machine;
  machine.nodes.push_back({.id = NodeId{1000}, .kind = NodeKind::storage});
  machine.engines.push_back(
      {.id = EngineId{900}, .kind = EngineKind::ssd, .name = "nvme0", .home = NodeId{1000}});
  for (const auto& [cpus, memory] :
       {std::pair{"48-59", NodeId{4}}, {"", NodeId{0}}}) {  // older profiles name no CPUs
    machine.copy_rates.clear();
    std::vector<Row> rows;
    for (const std::uint64_t depth : {1, 16}) {
      Row row{.experiment = "storage",
              .parameters = {{"node", std::uint64_t{1000}},
                             {"operation", "read"},
                             {"by", "io_uring"},
                             {"io", "direct"},
                             {"bytes", std::uint64_t{1 << 20}},
                             {"depth", depth}},
              .cpus = cpus};
      row.value = summarize(std::vector{1e9 * static_cast<double>(depth)});
      rows.push_back(std::move(row));
    }
    learned(profile_, std::move(rows));
    ASSERT_EQ(machine.copy_rates.size(), 1u);
    EXPECT_EQ(machine.copy_rates[0].from, NodeId{1000});
    EXPECT_EQ(machine.copy_rates[0].to, memory) << cpus;
  }
}

Row gpu_copy(const char* direction, std::uint64_t node, std::uint64_t bytes, double value) {
  Row row{.experiment = "gpu",
          .parameters = {{"part", "copy"},
                         {"direction", direction},
                         {"gpu", std::uint64_t{2}},
                         {"node", node},
                         {"by", "engine"},
                         {"memory", "pinned"},
                         {"bytes", bytes},
                         {"count", std::uint64_t{1}}},
          .basis = Basis::emulated};
  row.value = summarize(std::vector{value});
  return row;
}

TEST(GpuAttributesTest, WhatCopyEnginesCopyBecomesCopyRates) {
  Profile profile{.machine = Machine::load("gh200").value()};
  const std::size_t rates = profile.machine.copy_rates.size();
  profile.rows = {gpu_copy("to_gpu", 0, 4096, 2e9), gpu_copy("to_gpu", 0, 1 << 26, 400e9),
                  gpu_copy("from_gpu", 1, 1 << 26, 100e9), gpu_copy("both", 0, 4096, 1e12),
                  gpu_copy("to_gpu", 1, 4096, 1e9)};
  profile.rows.back().value.reset();
  put_into_machine(profile);
  EXPECT_EQ(profile.machine.copy_rates.size(), rates) << "in the place of what was published";
  const CopyRate* there = profile.machine.rate(EngineId{2}, NodeId{0}, NodeId{2});
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(there->bandwidth.value, 400e9);
  EXPECT_EQ(there->latency, Nanoseconds{2038}) << "4096 B / 2 GB/s, less 10 ns for the bytes";
  EXPECT_NE(there->source.find("emulated"), std::string::npos);
  EXPECT_EQ(profile.machine.rate(EngineId{2}, NodeId{2}, NodeId{1})->bandwidth.value, 100e9);
  EXPECT_EQ(profile.machine.rate(EngineId{2}, NodeId{1}, NodeId{2})->bandwidth.value, 133e9);
}

Row gpu_batch(const char* by, std::uint64_t bytes, std::uint64_t count, double bandwidth) {
  Row row = gpu_copy("to_gpu", 0, bytes, 100);
  row.parameters[0].second = "batch";
  row.parameters[4].second = by;
  row.parameters[7].second = count;
  row.details["bandwidth"] = bandwidth;
  return row;
}

class GpuGatherTest : public testing::Test {
 protected:
  GpuGatherTest() {
    profile_.rows = {gpu_copy("to_gpu", 0, 4096, 2e9), gpu_copy("from_gpu", 0, 4096, 2e9)};
  }
  void add(std::uint64_t bytes, std::uint64_t count, double kernel, double batch, double engine) {
    profile_.rows.push_back(gpu_batch("kernel", bytes, count, kernel));
    profile_.rows.push_back(gpu_batch("batch", bytes, count, batch));
    profile_.rows.push_back(gpu_batch("engine", bytes, count, engine));
  }
  std::optional<GatherLimit> found() {
    put_into_machine(profile_);
    return profile_.machine.rate(EngineId{2}, NodeId{0}, NodeId{2})->gather;
  }
  Profile profile_{.machine = Machine::load("gh200").value()};
};

TEST_F(GpuGatherTest, KernelTwiceAsFast_TakesThisSizeAndSmaller) {
  EXPECT_EQ(found(), std::nullopt);
  add(4096, 1, 9e9, 1e9, 1e9);  // one copy is not gathered
  add(4096, 16, 2e9, 1e9, 3e9);
  add(4096, 64, 8e9, 4e9, 3e9);
  add(4096, 256, 9e9, 4e9, 3e9);
  EXPECT_EQ(found(), (GatherLimit{4_KiB, 64}));
  add(16384, 64, 7e9, 4e9, 1e9);
  add(16384, 256, 9e9, 4e9, 1e9);
  add(65536, 64, 8e9, 4.1e9, 1e9);
  add(65536, 256, 8e9, 4.1e9, 1e9);
  EXPECT_EQ(found(), (GatherLimit{16_KiB, 256})) << "from the larger of the two counts";
  EXPECT_EQ(profile_.machine.rate(EngineId{2}, NodeId{2}, NodeId{0})->gather, std::nullopt);
}

TEST_F(GpuGatherTest, SmallerSizeOrLargerCountThatDoesNotPay_GivesNoLimit) {
  add(4096, 64, 3e9, 2e9, 1e9);
  add(16384, 64, 9e9, 1e9, 1e9);
  EXPECT_EQ(found(), std::nullopt);
  profile_.rows.resize(2);
  add(4096, 64, 9e9, 1e9, 1e9);
  add(4096, 256, 9e9, 8e9, 1e9);
  EXPECT_EQ(found(), std::nullopt);
}

TEST_F(GpuGatherTest, NoisyRowsAndRowsWithoutTheEnginesSayNothing) {
  profile_.rows.push_back(gpu_batch("kernel", 4096, 64, 9e9));
  EXPECT_EQ(found(), std::nullopt);
  add(4096, 64, 9e9, 1e9, 1e9);
  EXPECT_EQ(found(), (GatherLimit{4_KiB, 64}));
  for (Row& row : profile_.rows) row.add_flag("noisy");
  EXPECT_EQ(found(), std::nullopt);
}

}  // namespace
}  // namespace headrace
