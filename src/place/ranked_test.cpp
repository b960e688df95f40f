// SPDX-License-Identifier: Apache-2.0
#include "place/ranked.h"

#include <gtest/gtest.h>

#include "tests/support/machines.h"

namespace headrace {
namespace {

std::vector<std::uint32_t> ranked_ids(const Machine& machine, Property property,
                                      std::optional<std::uint32_t> from = 0) {
  std::vector<std::uint32_t> ids;
  const Node* initiator = from ? machine.find(NodeId{*from}) : nullptr;
  for (const Node* node : ranked_by(machine, property, initiator)) ids.push_back(raw(node->id));
  return ids;
}

using Ids = std::vector<std::uint32_t>;

// DRAM 0 with CPUs, HBM 8, CXL 9; values as measured from node 0.
Machine three_kinds(bool measured) {
  Machine machine = test::small_machine();
  machine.nodes.insert(machine.nodes.begin() + 2,
                       {.id = NodeId{9}, .kind = NodeKind::cxl, .capacity = 4_GiB});
  if (!measured) return machine;
  const auto give = [&](std::size_t index, double gigabytes, int nanoseconds) {
    machine.nodes[index].access = {{.initiator = NodeId{0},
                                    .read_latency = Nanoseconds{nanoseconds},
                                    .read_bandwidth = BytesPerSecond{gigabytes * 1e9},
                                    .measured = true}};
  };
  give(0, 60, 120);
  give(1, 58, 100);
  give(2, 20, 300);
  return machine;
}

TEST(RankedTest, ByKindWhereNothingElseIsKnown) {
  const Machine machine = three_kinds(false);
  EXPECT_EQ(ranked_ids(machine, Property::highest_bandwidth), (Ids{8, 0, 9}));
  EXPECT_EQ(ranked_ids(machine, Property::lowest_latency), (Ids{0, 8, 9}));
  EXPECT_EQ(ranked_ids(machine, Property::fastest), (Ids{8, 0, 9}));
  EXPECT_EQ(ranked_ids(machine, Property::largest), (Ids{9, 0, 8}));
}

// 60 and 58 GB/s are equal, so the nearest is taken. The fastest of equals has the lower latency.
TEST(RankedTest, MeasuredValuesDecideAndCloseOnesAreEqual) {
  const Machine machine = three_kinds(true);
  EXPECT_EQ(ranked_ids(machine, Property::highest_bandwidth), (Ids{0, 8, 9}));
  EXPECT_EQ(ranked_ids(machine, Property::fastest), (Ids{8, 0, 9}));
  EXPECT_EQ(ranked_ids(machine, Property::lowest_latency), (Ids{8, 0, 9}));
}

// A scale that does not know every node cannot compare them.
TEST(RankedTest, ScaleThatLacksANode_IsNotUsed) {
  Machine machine = three_kinds(true);
  machine.nodes[2].access.clear();
  EXPECT_EQ(ranked_ids(machine, Property::highest_bandwidth), (Ids{8, 0, 9}));
}

TEST(RankedTest, EqualNodes_AreOrderedByNearness) {
  const Machine machine = Machine::load("xeon-max").value();
  const Ids ranked = ranked_ids(machine, Property::highest_bandwidth, 6);
  EXPECT_EQ(ranked.size(), 16U);
  EXPECT_EQ(ranked.front(), 14U) << "the HBM of the same tile";
}

TEST(RankedTest, WithoutAnInitiatorByNumber) {
  EXPECT_EQ(ranked_ids(three_kinds(false), Property::largest, std::nullopt), (Ids{9, 0, 8}));
  EXPECT_TRUE(ranked_by({}, Property::fastest, nullptr).empty());
}

TEST(SpeedTest, OfTheInitiatorElseTheBestOfAll) {
  const Node node{
      .id = NodeId{8},
      .kind = NodeKind::hbm,
      .access = {
          {.initiator = NodeId{0},
           .read_latency = Nanoseconds{200},
           .read_bandwidth = BytesPerSecond{50e9}},
          {.initiator = NodeId{1},
           .read_latency = Nanoseconds{100},
           .read_bandwidth = BytesPerSecond{90e9},
           .measured = true},
          {.initiator = NodeId{2}, .read_bandwidth = BytesPerSecond{70e9}, .measured = true}}};
  EXPECT_EQ(by_bandwidth(NodeId{2}, true)(node), 70e9);
  EXPECT_EQ(by_bandwidth(NodeId{0}, true)(node), 90e9);
  EXPECT_EQ(by_bandwidth(std::nullopt, false)(node), 50e9);
  EXPECT_NEAR(*by_latency(NodeId{1}, true)(node), 1e7, 1);
  EXPECT_NEAR(*by_latency(NodeId{0}, false)(node), 5e6, 1);
  const Node unknown{.id = NodeId{1}, .kind = NodeKind::dram};
  EXPECT_EQ(by_bandwidth(NodeId{0}, true)(unknown), std::nullopt);
}

}  // namespace
}  // namespace headrace
