// SPDX-License-Identifier: Apache-2.0
#include "memory/pages/policy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "memory/memory_testing.h"

namespace headrace {
namespace {

// Three pages; a test can unmap the middle one.
class PolicyTest : public testing::Test {
 protected:
  PolicyTest()
      : memory_(static_cast<std::byte*>(::mmap(nullptr, 3 * page_size(), PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~PolicyTest() override { ::munmap(memory_, 3 * page_size()); }

  std::array<int, 3> nodes() {
    std::array<void*, 3> addresses{memory_, memory_ + page_size(), memory_ + 2 * page_size()};
    std::array<int, 3> found{};
    EXPECT_EQ(page_nodes(addresses, found), 0);
    return found;
  }

  std::byte* const memory_;
};

TEST_F(PolicyTest, PopulatesExactlyTheRange) {
  EXPECT_EQ(nodes(), (std::array{-ENOENT, -ENOENT, -ENOENT}));
  EXPECT_EQ(populate(memory_ + page_size(), page_size()), 0);
  const auto found = nodes();
  EXPECT_EQ(found[0], -ENOENT);
  EXPECT_GE(found[1], 0);
  EXPECT_EQ(found[2], -ENOENT);
}

TEST_F(PolicyTest, ReportsAHole) {
  ASSERT_EQ(::munmap(memory_ + page_size(), page_size()), 0);
  EXPECT_EQ(populate(memory_, 3 * page_size()), ENOMEM);
  EXPECT_EQ(nodes()[1], -EFAULT);
  const NodeId node = this_host().nodes.front().id;
  EXPECT_EQ(set_policy(memory_, 3 * page_size(), MemoryPolicy::bind, {&node, 1}), EFAULT);
}

TEST_F(PolicyTest, TakesEveryPolicyOnANodeThatIsThere) {
  const NodeId node = this_host().nodes.front().id;
  for (const MemoryPolicy policy :
       {MemoryPolicy::preferred, MemoryPolicy::bind, MemoryPolicy::interleave}) {
    EXPECT_EQ(set_policy(memory_, 3 * page_size(), policy, {&node, 1}), 0);
  }
  EXPECT_EQ(populate(memory_, 3 * page_size()), 0);
  for (const int found : nodes()) EXPECT_EQ(found, static_cast<int>(raw(node)));
}

TEST_F(PolicyTest, AbsentNode_IsRefused) {
  const NodeId node{777};
  EXPECT_EQ(set_policy(memory_, 3 * page_size(), MemoryPolicy::bind, {&node, 1}), EINVAL);
}

TEST(KernelWeights, AreReadFromOneFilePerNode) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("headrace-weights-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(folder / name) << text;
  };
  write("node8", "1\n");
  write("node0", "3\n");
  write("auto", "false\n");
  write("nodeX", "7\n");
  write("node2", "");
  EXPECT_EQ(kernel_weights(folder), (std::vector<NodeWeight>{{NodeId{0}, 3}, {NodeId{8}, 1}}));
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(kernel_weights(folder).empty());
}

}  // namespace
}  // namespace headrace
