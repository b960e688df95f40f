#include "measure/session/available.h"

#include <gtest/gtest.h>

namespace headrace::session {
namespace {

Machine two_nodes() {
  Machine machine;
  machine.nodes = {{.id = NodeId{0}, .kind = NodeKind::dram, .capacity = 64_GiB},
                   {.id = NodeId{1}, .kind = NodeKind::hbm, .capacity = 16_GiB},
                   {.id = NodeId{1000}, .kind = NodeKind::storage, .capacity = 1_GiB}};
  return machine;
}

Bytes capacity(const Machine& machine, std::size_t node) { return *machine.nodes[node].capacity; }

TEST(WithinFreeMemory, NodesThatAreMostlyUsedCountAsSmaller) {
  const HostMemory host{
      .nodes = {{.id = NodeId{0}, .free = 40_GiB}, {.id = NodeId{1}, .free = 3_GiB}}};
  const Machine machine = within_free_memory(two_nodes(), host);
  EXPECT_EQ(capacity(machine, 0), 64_GiB) << "enough is free";
  EXPECT_EQ(capacity(machine, 1), 2_GiB);
  EXPECT_EQ(capacity(machine, 2), 1_GiB) << "no memory";
}

TEST(WithinFreeMemory, ACgroupsLimitCountsForEveryNode) {
  HostMemory host{.nodes = {{.id = NodeId{0}, .free = 64_GiB}}, .cgroup = 700_MiB};
  EXPECT_EQ(capacity(within_free_memory(two_nodes(), host), 0), 512_MiB);
  EXPECT_EQ(capacity(within_free_memory(two_nodes(), host), 1), 16_GiB) << "not known";
  host.unread = true;
  EXPECT_EQ(capacity(within_free_memory(two_nodes(), host), 0), 64_GiB) << "nothing is known";
}

TEST(RefuseForbidden, MemoryOutsideTheCpusetCostsNoTime) {
  const HostMemory host{.nodes = {{.id = NodeId{0}}, {.id = NodeId{1}, .allowed = false}},
                        .allowed_list = "0"};
  const auto on = [](std::uint64_t from, std::uint64_t to) {
    Point point;
    point.row.parameters = {{"cpu_node", std::uint64_t{1}}, {"from", from}, {"to", to}};
    return point;
  };
  std::vector<Point> points = {on(0, 0), on(0, 1), on(1, 0), on(0, 1000)};
  refuse_forbidden(points, host);
  EXPECT_EQ(points[0].row.reason, "");
  EXPECT_EQ(points[1].row.reason,
            "the cpuset of this process forbids memory of node 1; it may use 0");
  EXPECT_TRUE(points[2].row.has_flag("absent"));
  EXPECT_EQ(points[3].row.reason, "") << "no memory: a disk";
}

}  // namespace
}  // namespace headrace::session
