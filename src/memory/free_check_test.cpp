// SPDX-License-Identifier: Apache-2.0
#include "memory/free_check.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "headrace/process.h"
#include "memory/memory_testing.h"
#include "tests/support/expect.h"

namespace headrace {
namespace {

using test::expect_refused;

HostMemory two_nodes() {
  HostMemory host;
  host.nodes = {{.id = NodeId{0}, .free = 100_MiB}, {.id = NodeId{8}, .free = 10_MiB}};
  return host;
}

// Strict demands fit each node, others all nodes together; claims of other requests count as taken.
TEST(CheckFree, Demand_IsComparedWithFreeMemory) {
  const NodeId large{0}, small{8};
  const std::map<NodeId, Bytes> taken{{small, 4_MiB}};
  struct Case {
    Demand demand;
    std::map<NodeId, Bytes> taken;
    bool fits;
  };
  const std::vector<Case> cases{
      {{{{small, 10_MiB}}}, {}, true},         {{{{large, 1_MiB}, {small, 11_MiB}}}, {}, false},
      {{{{small, 110_MiB}}, false}, {}, true}, {{{{small, 111_MiB}}, false}, {}, false},
      {{{{small, 6_MiB}}}, taken, true},       {{{{small, 7_MiB}}}, taken, false},
      {{{{large, 100_MiB}}}, taken, true},     {{{{large, 107_MiB}}, false}, taken, false}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [demand, claims, fits] = cases[i];
    EXPECT_EQ(check_free(two_nodes(), demand, claims).has_value(), fits) << i;
  }
  const Status refused = check_free(two_nodes(), cases[1].demand);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_EQ(refused.error().message,
            "11 MiB do not fit on node 8; free now: node 0 100 MiB, node 8 10 MiB; ask for less, "
            "free some, or let it spill (strict = false)");
}

TEST(CheckFree, KeepsToTheMemoryCgroup) {
  HostMemory host = two_nodes();
  host.cgroup = 5_MiB;
  EXPECT_TRUE(check_free(host, {.nodes = {{NodeId{0}, 5_MiB}}}));
  expect_refused(check_free(host, {.nodes = {{NodeId{0}, 6_MiB}}}), ErrorCode::exhausted,
                 "memory.max");
}

// Not "4 KiB do not fit; free now: node 0 0 B": the free memory is unknown.
TEST(CheckFree, SaysThatNoFileDescriptorIsLeft) {
  const int next = dup(STDERR_FILENO);
  ASSERT_GE(next, 0);
  close(next);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto claim = Claim::make({.nodes = {{NodeId{0}, 4_KiB}}, .strict = false});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  expect_refused(claim, ErrorCode::exhausted, "no file descriptor is left");
  EXPECT_TRUE(Claim::make({.nodes = {{NodeId{0}, 4_KiB}}, .strict = false}));
}

TEST(Claim, IsGivenBackWhenItGoes) {
  const HostMemory host = read_host_memory();
  const Demand most{.nodes = {{host.nodes.front().id, host.nodes.front().free / 10 * 7}}};
  {
    const auto claim = Claim::make(most);
    ASSERT_TRUE(claim) << claim.error().message;
    EXPECT_FALSE(Claim::make(most)) << "both together do not fit";
  }
  EXPECT_TRUE(Claim::make(most));
}

TEST(FreeMemoryTest, IsOfTheAllowedNodes) {
  const FreeMemory free = free_memory();
  const Machine machine = this_host();
  ASSERT_EQ(free.nodes.size(), machine.nodes.size());
  for (const Node& node : machine.nodes) EXPECT_TRUE(free.nodes.contains(node.id));
  EXPECT_GT(free.nodes.begin()->second, 1_MiB);
}

}  // namespace
}  // namespace headrace
