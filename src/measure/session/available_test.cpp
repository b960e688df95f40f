// SPDX-License-Identifier: Apache-2.0
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

// Two nodes of four CPUs; adjacent CPUs are threads of a core: 0 and 1, 2 and 3 ...
Machine with_cpus() {
  Machine machine = two_nodes();
  machine.nodes[0].cpus = {0, 1, 2, 3};
  machine.nodes[1].cpus = {4, 5, 6, 7};
  for (unsigned core = 0; core < 4; ++core) {
    machine.caches.push_back({.level = 1, .size = 32_KiB, .cpus = {2 * core, 2 * core + 1}});
  }
  return machine;
}

TEST(WithinCpuTime, NodesHaveAsManyCpusAsTheirTimeIsGiven) {
  const AsIfUsable as_if({0, 1, 2, 3, 4, 5, 6, 7});
  const auto cpus = [](double limit, std::size_t node) {
    return within_cpu_time(with_cpus(), CpuTimeLimit{limit, "cpu.max", ""}).nodes[node].cpus;
  };
  EXPECT_EQ(cpus(2, 0), (CpuSet{0, 2})) << "two cores, and not two threads of one";
  EXPECT_EQ(cpus(2.9, 1), (CpuSet{4, 6})) << "a third would be stopped now and then";
  EXPECT_EQ(cpus(3, 0), (CpuSet{0, 1, 2}));
  EXPECT_EQ(cpus(0.2, 0), (CpuSet{0}));
  EXPECT_EQ(cpus(8, 0), (CpuSet{0, 1, 2, 3}));
  EXPECT_EQ(within_cpu_time(with_cpus(), std::nullopt).nodes[0].cpus.size(), 4U);
}

TEST(WithinCpuTime, NoLimitBelowTheCpusThatMayBeUsed) {
  const AsIfUsable as_if({1, 3});
  const Machine machine = within_cpu_time(with_cpus(), CpuTimeLimit{2, "cpu.max", ""});
  EXPECT_EQ(machine.nodes[0].cpus.size(), 4U);
  EXPECT_EQ(within_cpu_time(with_cpus(), CpuTimeLimit{1, "", ""}).nodes[0].cpus, CpuSet{1});
}

TEST(RefuseTooManyThreads, SaysWhichLimitAndCostsNoTime) {
  std::vector<Point> points(3);
  points[0].row.parameters = {{"threads", std::uint64_t{2}}};
  points[1].row.parameters = {{"threads", std::uint64_t{3}}};
  points.emplace_back().row.cpus = "0-1,7";
  refuse_too_many_threads(points, CpuTimeLimit{2.5, "cpu.max", "250000 100000"});
  EXPECT_EQ(points[0].row.reason + points[2].row.reason, "");
  EXPECT_EQ(points[1].row.reason, "3 threads have 2.5 CPUs' time (cpu.max: 250000 100000)");
  EXPECT_EQ(points[3].row.reason, points[1].row.reason) << "an observer and two beside it";
  EXPECT_TRUE(points[1].row.has_flag("absent"));
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
  for (const char* name : {"memory_node", "other_memory_node", "traffic_memory_node", "b", "c"}) {
    std::vector<Point> one(1);
    one[0].row.parameters = {{name, std::uint64_t{1}}};
    refuse_forbidden(one, host);
    EXPECT_NE(one[0].row.reason, "") << name;
  }
  std::vector<Point> unnamed(2);  // no parameter names them
  unnamed[0].others = {NodeId{1}};
  unnamed[1].memory = {NodeId{1}};
  refuse_forbidden(unnamed, host);
  for (const Point& point : unnamed) EXPECT_TRUE(point.row.has_flag("absent"));
}

}  // namespace
}  // namespace headrace::session
