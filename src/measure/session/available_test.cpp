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

}  // namespace
}  // namespace headrace::session
