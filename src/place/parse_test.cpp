// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "headrace/placement.h"
#include "headrace/random.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

Machine max_machine() { return Machine::load("xeon-max").value(); }

std::string complaint_about(std::string_view text) {
  const auto placement = Placement::parse(test::small_machine(), text);
  return placement ? "none: " + placement->to_text() : placement.error().message;
}

TEST(ParsePlacementTest, KindsPropertiesAndNodes) {
  const Machine machine = max_machine();
  EXPECT_EQ(Placement::parse(machine, "hbm")->kind, NodeKind::hbm);
  EXPECT_EQ(Placement::parse(machine, "hbm-interleave")->distribution, Distribution::interleave);
  EXPECT_EQ(Placement::parse(machine, "hbm-first-touch")->kind, NodeKind::hbm);
  EXPECT_FALSE(Placement::parse(machine, "hbm_nearest"));
  EXPECT_EQ(Placement::parse(machine, "lowest-latency")->property, Property::lowest_latency);
  EXPECT_EQ(Placement::parse(machine, "largest")->property, Property::largest);
  EXPECT_EQ(Placement::parse(machine, "8-10")->nodes,
            (std::vector<NodeWeight>{{NodeId{8}, 1}, {NodeId{9}, 1}, {NodeId{10}, 1}}));
  EXPECT_TRUE(Placement::parse(machine, "8")->strict);
  EXPECT_EQ(Placement::parse(test::small_machine(), "storage")->kind, NodeKind::storage);
}

TEST(ParsePlacementTest, SeveralAreTriedInOrder) {
  const auto placement = Placement::parse(max_machine(), "hbm:dram:3");
  ASSERT_FALSE(placement) << "node 3 is DRAM: named twice";
  const auto ordered = Placement::parse(max_machine(), "8:9,0");
  ASSERT_TRUE(ordered) << ordered.error().message;
  EXPECT_FALSE(ordered->strict);
  EXPECT_EQ(ordered->spill, (std::vector<NodeChoice>{NodeId{0}, NodeId{9}}));
  EXPECT_EQ(Placement::parse(max_machine(), "8:hbm:dram")->to_text(), "8:hbm:dram");
}

TEST(ParsePlacementTest, WeightsOfNodes) {
  const auto placement = Placement::parse(max_machine(), "0-1=3,8=1:dram");
  ASSERT_TRUE(placement) << placement.error().message;
  EXPECT_EQ(placement->nodes,
            (std::vector<NodeWeight>{{NodeId{0}, 3}, {NodeId{1}, 3}, {NodeId{8}, 1}}));
  EXPECT_EQ(placement->to_text(), "0=3,1=3,8=1:dram");
}

// The weight of a kind is spread evenly over its nodes.
TEST(ParsePlacementTest, WeightsOfKindsAreTheKindsShares) {
  Machine machine = test::small_machine();
  EXPECT_EQ(Placement::parse(machine, "dram=6,hbm=2")->nodes,
            (std::vector<NodeWeight>{{NodeId{0}, 3}, {NodeId{8}, 1}}));
  machine.nodes.insert(machine.nodes.begin() + 1,
                       {.id = NodeId{1}, .kind = NodeKind::dram, .capacity = 1_GiB});
  EXPECT_EQ(Placement::parse(machine, "dram=3,hbm=1")->nodes,
            (std::vector<NodeWeight>{{NodeId{0}, 3}, {NodeId{1}, 3}, {NodeId{8}, 2}}));
  const auto even = Placement::parse(max_machine(), "dram=1,hbm=1");
  ASSERT_EQ(even->nodes.size(), 16U);
  for (const NodeWeight& each : even->nodes) EXPECT_EQ(each.weight, 1U);
}

TEST(ParsePlacementTest, UnknownWord_ListsTheValidOnes) {
  EXPECT_EQ(
      complaint_about("hmb"),
      "'hmb' is no kind, property or list of nodes; write dram, hbm, cxl, gpu, storage, fastest, "
      "lowest_latency, highest_bandwidth, largest, or nodes like 0-3,8");
}

TEST(ParsePlacementTest, RefusesNonsense) {
  EXPECT_EQ(complaint_about("dram=0"), "'dram=0' is no weight; give a whole number from 1 to 255");
  EXPECT_EQ(complaint_about("dram=1000000"),
            "'dram=1000000' is no weight; give a whole number from 1 to 255");
  EXPECT_EQ(complaint_about("dram=3,8=1"),
            "'dram=3,8=1' weighs kinds and nodes; name only one of the two");
  EXPECT_EQ(complaint_about("dram=3,hbm"), "'hbm' has no weight; write them all like dram=3,cxl=1");
  EXPECT_NE(complaint_about("17").find("no node 17"), std::string::npos);
  EXPECT_EQ(complaint_about("0-4000000"),
            "'0-4000000' is no list of nodes of any machine; write it like 0-3,8 (headrace topo "
            "shows which there are)");
  EXPECT_EQ(complaint_about("dram:fastest"),
            "'fastest' can only come first; spill to kinds or nodes");
  EXPECT_EQ(complaint_about("dram:storage"),
            "node 1000 is storage, which holds only whole buffers, as files; use another");
  EXPECT_NE(complaint_about("cxl").find("no cxl node here"), std::string::npos);
  for (const char* text :
       {"", ":", "hbm:", ":hbm", "storage=2,dram=1", "storage:dram", "1001", "=3", "dram=", "8,8x",
        "hbm:hbm=2", "dram=1,dram=2", "4294967295", "0-99999999999"}) {
    EXPECT_TRUE(complaint_about(text).find("none: ") == std::string::npos) << text;
  }
}

TEST(ParsePlacementTest, TextOfAPlacement_IsReadBack) {
  const Machine machine = max_machine();
  for (const char* text : {"hbm", "hbm_interleave", "dram_first_touch", "hbm_interleave:dram",
                           "fastest", "0-7", "0=3,8=1", "hbm:dram", "8:0:1", "0=2,1=5:hbm"}) {
    const auto placement = Placement::parse(machine, text);
    ASSERT_TRUE(placement) << text;
    EXPECT_EQ(placement->to_text(), text);
  }
}

TEST(ParsePlacementTest, AnyTextGivesAPlacementOrAComplaint) {
  const Machine machine = test::small_machine();
  Random random(1);
  constexpr std::string_view kLetters = "hbmdrcxl0189-,:=fast _";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (std::uint64_t left = random.below(12); left > 0; --left) {
      text += kLetters[random.below(kLetters.size())];
    }
    const auto placement = Placement::parse(machine, text);
    if (placement) {
      EXPECT_TRUE(resolve(machine, *placement)) << text;
      EXPECT_TRUE(Placement::parse(machine, placement->to_text())) << text;
    } else {
      EXPECT_FALSE(placement.error().message.empty());
    }
  }
}

}  // namespace
}  // namespace headrace
