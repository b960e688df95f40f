#include "headrace/placement.h"

#include <gtest/gtest.h>

#include "support/machines.h"

namespace headrace {
namespace {

using test::kDisk;
using test::kDram;
using test::kHbm;
using test::small_machine;

std::vector<NodeId> ids(const Placement& placement) {
  std::vector<NodeId> found;
  for (const NodeWeight& each : placement.nodes) found.push_back(each.node);
  return found;
}

std::vector<NodeId> nodes(std::initializer_list<std::uint32_t> numbers) {
  std::vector<NodeId> found;
  for (const auto number : numbers) found.push_back(NodeId{number});
  return found;
}

TEST(PlacementTest, TheShortWaysToSayIt) {
  EXPECT_EQ(Placement::on(kHbm).nodes, (std::vector<NodeWeight>{{kHbm, 1}}));
  EXPECT_EQ(Placement::on(NodeKind::hbm).kind, NodeKind::hbm);
  EXPECT_EQ(Placement::interleave({kDram, kHbm}).nodes,
            (std::vector<NodeWeight>{{kDram, 1}, {kHbm, 1}}));
  EXPECT_EQ(Placement::weighted({{kDram, 3}, {kHbm, 1}}).nodes,
            (std::vector<NodeWeight>{{kDram, 3}, {kHbm, 1}}));
  EXPECT_TRUE(Placement::on(kHbm).strict);
  EXPECT_EQ(to_string(PageSize::huge_2m), "huge_2m");
}

TEST(ResolveTest, NodesStayAndKindsBecomeNodes) {
  const Machine machine = small_machine();
  Placement wish = Placement::weighted({{kDram, 3}, {kHbm, 1}});
  wish.pages = PageSize::huge_2m;
  const auto same = resolve(machine, wish);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->nodes, wish.nodes);
  EXPECT_EQ(same->pages, PageSize::huge_2m);
  const auto hbm = resolve(machine, Placement::on(NodeKind::hbm));
  ASSERT_TRUE(hbm);
  EXPECT_EQ(hbm->kind, std::nullopt);
  EXPECT_EQ(ids(*hbm), nodes({8}));
}

TEST(ResolveTest, KindsComeNearestFirst) {
  const auto machine = Machine::load("xeon-max");
  ASSERT_TRUE(machine);
  const auto any = resolve(*machine, Placement::on(NodeKind::hbm));
  ASSERT_TRUE(any);
  EXPECT_EQ(ids(*any), nodes({8, 9, 10, 11, 12, 13, 14, 15}));
  // Its own tile's, then the rest of its socket, then the other socket.
  const auto near = resolve(*machine, Placement::on(NodeKind::hbm), NodeId{6});
  ASSERT_TRUE(near);
  EXPECT_EQ(ids(*near), nodes({14, 12, 13, 15, 8, 9, 10, 11}));
}

TEST(ResolveTest, DistanceComesFirst) {
  Machine machine = small_machine();
  machine.nodes.insert(machine.nodes.begin() + 2,
                       {.id = NodeId{9}, .kind = NodeKind::hbm, .capacity = 1_GiB});
  machine.nodes[0].distances = {{kDram, 10}, {kHbm, 20}, {NodeId{9}, 13}};
  EXPECT_EQ(ids(*resolve(machine, Placement::on(NodeKind::hbm), kDram)), nodes({9, 8}));
}

TEST(ResolveTest, SaysWhatIsWrong) {
  const Machine machine = small_machine();
  const auto code = [&](const Placement& wish) {
    const auto resolved = resolve(machine, wish);
    return resolved ? std::optional<ErrorCode>() : resolved.error().code;
  };
  EXPECT_EQ(code(Placement::on(NodeId{3})), ErrorCode::absent);
  EXPECT_EQ(code(Placement::on(NodeKind::cxl)), ErrorCode::absent);
  EXPECT_EQ(code(Placement::on(kDisk)), ErrorCode::unsupported);
  EXPECT_EQ(code(Placement::on(NodeKind::storage)), ErrorCode::unsupported);
  EXPECT_EQ(code({}), ErrorCode::invalid);
  EXPECT_EQ(code(Placement::weighted({{kDram, 0}})), ErrorCode::invalid);
  EXPECT_EQ(code(Placement::weighted({{kDram, 1}, {kDram, 2}})), ErrorCode::invalid);
  Placement both = Placement::on(kDram);
  both.kind = NodeKind::hbm;
  EXPECT_EQ(code(both), ErrorCode::invalid);
  EXPECT_EQ(resolve(machine, Placement::on(NodeKind::cxl)).error().message,
            "no cxl node here, only dram, hbm, storage; if one was not recognised set "
            "HEADRACE_NODES=ID=cxl");
  EXPECT_EQ(resolve(machine, Placement::on(NodeKind::hbm), NodeId{77}).error().code,
            ErrorCode::absent);
}

}  // namespace
}  // namespace headrace
