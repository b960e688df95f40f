// SPDX-License-Identifier: Apache-2.0
#include "headrace/process.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "host/host_memory.h"
#include "tests/support/expect.h"

namespace headrace {
namespace {

using test::expect_refused;

struct Set {
  int mode = -1;
  std::uint64_t first_nodes = 0;  // node n is bit n
};

// This thread's policy as the kernel reports it.
Set policy_now() {
  Set set;
  std::array<unsigned long, 64> mask{};
  EXPECT_EQ(::syscall(SYS_get_mempolicy, &set.mode, mask.data(), 8 * sizeof(mask), nullptr, 0), 0);
  set.first_nodes = mask[0];
  return set;
}

// Runs `body` in a thread of its own; the policy ends with the thread.
template <class Body>
void in_a_thread(Body body) {
  std::jthread thread(body);
}

TEST(MemoryPolicyTest, IsWhatTheKernelThenSays) {
  const NodeId node = read_host_memory().nodes.front().id;
  const std::uint64_t bit = std::uint64_t{1} << raw(node);
  in_a_thread([&] {
    ASSERT_TRUE(set_process_policy(MemoryPolicy::bind, {node}));
    EXPECT_EQ(policy_now().mode, MPOL_BIND);
    EXPECT_EQ(policy_now().first_nodes, bit);
    ASSERT_TRUE(set_process_policy(MemoryPolicy::interleave, {node}));
    EXPECT_EQ(policy_now().mode, MPOL_INTERLEAVE);
    ASSERT_TRUE(set_process_policy(MemoryPolicy::preferred, {node}));
    EXPECT_EQ(policy_now().mode, MPOL_PREFERRED);
    in_a_thread([] { EXPECT_EQ(policy_now().mode, MPOL_PREFERRED) << "inherited"; });
    ASSERT_TRUE(set_process_policy(MemoryPolicy::none));
    EXPECT_EQ(policy_now().mode, MPOL_DEFAULT);
  });
  EXPECT_EQ(policy_now().mode, MPOL_DEFAULT) << "other threads keep theirs";
}

TEST(MemoryPolicyTest, NewerPolicies_AreSetOrReportedAsUnknown) {
  const NodeId node = read_host_memory().nodes.front().id;
  in_a_thread([&] {
    for (const auto policy : {MemoryPolicy::preferred_many, MemoryPolicy::weighted_interleave}) {
      const auto status = set_process_policy(policy, {node});
      if (!status) {
        EXPECT_EQ(status.error().code, ErrorCode::unsupported) << status.error().message;
        continue;
      }
      EXPECT_EQ(policy_now().mode, policy == MemoryPolicy::preferred_many ? 5 : 6);
    }
  });
}

TEST(MemoryPolicyTest, AbsentNode_IsNamedInTheError) {
  const NodeId node = read_host_memory().nodes.front().id;
  expect_refused(set_process_policy(MemoryPolicy::bind, {node, NodeId{777}}), ErrorCode::absent,
                 "node 777");
  EXPECT_EQ(set_process_policy(MemoryPolicy::bind).error().code, ErrorCode::invalid);
  EXPECT_EQ(set_process_policy(MemoryPolicy::none, {node}).error().code, ErrorCode::invalid);
  EXPECT_EQ(policy_now().mode, MPOL_DEFAULT);
}

}  // namespace
}  // namespace headrace
