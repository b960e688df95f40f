// SPDX-License-Identifier: Apache-2.0
#include "memory/layout.h"

#include <gtest/gtest.h>

#include "tests/support/expect.h"

namespace headrace {
namespace {

using test::expect_refused;

constexpr NodeId kA{0};
constexpr NodeId kB{1};
constexpr NodeId kC{2};

Machine three_nodes() {
  Machine machine;
  machine.source = "test";
  for (const NodeId id : {kA, kB, kC}) {
    machine.nodes.push_back({.id = id, .kind = NodeKind::dram, .reason = "test"});
  }
  machine.nodes.front().cpus = {0};
  return machine;
}

HostMemory with_free(Bytes a, Bytes b, Bytes c) {
  return {.nodes = {{.id = kA, .free = a}, {.id = kB, .free = b}, {.id = kC, .free = c}}};
}

Placement spilling(const std::vector<NodeChoice>& spill) {
  Placement placement = Placement::on(kA);
  placement.strict = false;
  placement.spill = spill;
  return placement;
}

struct Laid {
  explicit Laid(Placement wish, Bytes bytes = 1_MiB, PageSize size = PageSize::base)
      : placement(std::move(wish)), layout(lay_out(machine, placement, bytes, size)) {}
  const Machine machine = three_nodes();
  const Placement placement;
  Layout layout;
};

using Demands = std::map<NodeId, Bytes>;

TEST(LayoutTest, LayoutThatFits_StaysOnItsNodes) {
  Laid laid(spilling({kC, kB}));
  ASSERT_TRUE(spill(laid.layout, with_free(1_MiB, 0_B, 0_B)));
  EXPECT_EQ(laid.layout.runs, (std::vector<PageRun>{{0, 1 << 20, 0}}));
  EXPECT_FALSE(demand_of(laid.layout, {}).strict);
}

// Split anew each time, since free memory changes.
TEST(LayoutTest, TheRestSpillsInTheStatedOrder) {
  Laid laid(spilling({kC, kB}));
  HostMemory forbidden = with_free(0_B, 1_MiB, 1_MiB);
  forbidden.nodes[2].allowed = false;
  for (const auto& [host, expected] :
       {std::pair{with_free(100_KiB, 1_MiB, 300_KiB),
                  Demands{{kA, 100_KiB}, {kC, 300_KiB}, {kB, 624_KiB}}},
        {with_free(0_B, 1_MiB, 1_MiB), Demands{{kA, 0_B}, {kC, 1_MiB}, {kB, 0_B}}},
        {forbidden, Demands{{kA, 0_B}, {kC, 0_B}, {kB, 1_MiB}}},
        {with_free(2_MiB, 0_B, 0_B), Demands{{kA, 1_MiB}, {kC, 0_B}, {kB, 0_B}}}}) {
    ASSERT_TRUE(spill(laid.layout, host));
    const Demand demand = demand_of(laid.layout, {});
    for (const auto& [node, bytes] : expected) {
      const auto found = demand.nodes.find(node);
      EXPECT_EQ(found == demand.nodes.end() ? 0_B : found->second, bytes) << raw(node);
    }
    EXPECT_TRUE(demand.strict || expected.at(kA) == 1_MiB) << "each node has to have what was seen";
  }
}

TEST(LayoutTest, TooLittleOnAllNodes_IsExhausted) {
  Laid laid(spilling({kC}));
  expect_refused(spill(laid.layout, with_free(100_KiB, 9_MiB, 300_KiB)), ErrorCode::exhausted,
                 "do not fit on nodes 0:2; free now: node 0 100 KiB");
}

// A layout that the kernel would distribute is cut into runs once it does not fit.
TEST(LayoutTest, WeightsAreKeptInWhatFits) {
  const Machine machine = three_nodes();
  Placement placement = Placement::interleave({kA, kB});
  placement.strict = false;
  placement.spill = {kC};
  Layout layout = lay_out(machine, placement, 1_MiB, PageSize::base);
  EXPECT_EQ(layout.policy, MemoryPolicy::interleave);
  ASSERT_TRUE(spill(layout, with_free(100_KiB, 300_KiB, 1_MiB)));
  EXPECT_EQ(layout.policy, std::nullopt);
  EXPECT_EQ(demand_of(layout, {}).nodes,
            (std::map<NodeId, Bytes>{{kA, 100_KiB}, {kB, 300_KiB}, {kC, 624_KiB}}));
  EXPECT_TRUE(demand_of(layout, {}).strict);
  ASSERT_TRUE(spill(layout, with_free(0_B, 2_MiB, 0_B)));
  EXPECT_EQ(demand_of(layout, {}).nodes,
            (std::map<NodeId, Bytes>{{kA, 0_B}, {kB, 1_MiB}, {kC, 0_B}}));
  EXPECT_TRUE(demand_of(layout, {}).strict) << "a node of the placement has no part";
}

// The kernel puts each page near the thread that touches it; free memory of all nodes is summed.
TEST(LayoutTest, FirstTouchIsLeftToTheKernelAndCountsWhatAllNodesHave) {
  const Machine machine = three_nodes();
  Placement placement = Placement::interleave({kA, kB});
  placement.distribution = Distribution::first_touch;
  const Layout layout = lay_out(machine, placement, 1_MiB, PageSize::base);
  EXPECT_EQ(layout.policy, MemoryPolicy::bind);
  EXPECT_TRUE(layout.runs.empty());
  const HostMemory host = with_free(300_KiB, 800_KiB, 9_MiB);
  EXPECT_EQ(demand_of(layout, host).nodes, (std::map<NodeId, Bytes>{{kA, 300_KiB}, {kB, 724_KiB}}));
  EXPECT_TRUE(check_free(host, demand_of(layout, host)));
  const HostMemory full = with_free(300_KiB, 700_KiB, 9_MiB);
  EXPECT_FALSE(check_free(full, demand_of(layout, full)));
  placement.strict = false;
  EXPECT_EQ(lay_out(machine, placement, 1_MiB, PageSize::base).policy,
            MemoryPolicy::preferred_many);
  EXPECT_NE(why_unfit(lay_out(machine, placement, 2_MiB, PageSize::huge_2m), host), "");
}

// A strict kind is bound run by run, to its nearest node and then to the next.
TEST(LayoutTest, AStrictKindSpillsBoundToTheNextOfIt) {
  Placement placement = spilling({kC});
  placement.strict = true;
  Laid laid(placement);
  ASSERT_TRUE(spill(laid.layout, with_free(100_KiB, 9_MiB, 1_MiB)));
  EXPECT_EQ(demand_of(laid.layout, {}).nodes, (Demands{{kA, 100_KiB}, {kC, 924_KiB}}));
  EXPECT_TRUE(demand_of(laid.layout, {}).strict);
}

// Leaves out nodes that the request did not name, and only those.
TEST(LayoutTest, UnusableNodesThatResolveChose_AreLeftOut) {
  const Machine machine = three_nodes();
  HostMemory host = with_free(1_MiB, 1_MiB, 1_MiB);
  Placement resolved = Placement::on(kA);
  resolved.spill = {NodeId{7}, kB, kC};  // the host has no node 7
  resolved.chosen = {kA, NodeId{7}, kB, kC};
  const auto left = [&](Placement placement) {
    leave_out_unusable(placement, host);
    return placement.to_text();
  };
  EXPECT_EQ(left(resolved), "0:1:2");
  host.nodes[0].allowed = false;
  EXPECT_EQ(left(resolved), "1:2");
  Placement named = resolved;
  named.chosen.clear();
  EXPECT_EQ(left(named), "0:7:1:2") << "an error, and not passed over";
  for (NodeMemory& node : host.nodes) node.allowed = false;
  leave_out_unusable(resolved, host);
  EXPECT_EQ(check_nodes(machine, resolved, host).error().code, ErrorCode::denied);
}

TEST(LayoutTest, HugePagesAreNotDivided) {
  Laid laid(spilling({kC}), 8_MiB, PageSize::transparent);
  ASSERT_TRUE(spill(laid.layout, with_free(5_MiB, 0_B, 8_MiB)));
  EXPECT_EQ(demand_of(laid.layout, {}).nodes, (Demands{{kA, 4_MiB}, {kC, 4_MiB}}));
}

TEST(LayoutTest, NodesSpilledToAreCheckedLikeTheOthers) {
  const Machine machine = three_nodes();
  HostMemory host = with_free(1_MiB, 1_MiB, 1_MiB);
  host.nodes[2].allowed = false;
  host.allowed_list = "0-1";
  EXPECT_EQ(check_nodes(machine, spilling({kC}), host).error().code, ErrorCode::denied);
  EXPECT_EQ(check_nodes(machine, spilling({NodeId{7}}), host).error().code, ErrorCode::absent);
  EXPECT_TRUE(check_nodes(machine, spilling({kB}), host));
}

}  // namespace
}  // namespace headrace
