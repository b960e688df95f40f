// SPDX-License-Identifier: Apache-2.0
#include "host/mempolicy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>

#include "host/host_memory.h"
#include "host/page_sizes.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

std::size_t page_size() { return base_page().value; }
NodeId first_node() { return read_host_memory().nodes.front().id; }

// Three pages; a test can unmap the middle one.
class PolicyTest : public testing::Test {
 protected:
  PolicyTest()
      : memory_(static_cast<std::byte*>(::mmap(nullptr, 3 * page_size(), PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~PolicyTest() override { ::munmap(memory_, 3 * page_size()); }

  std::array<void*, 3> addresses() const {
    return {memory_, memory_ + page_size(), memory_ + 2 * page_size()};
  }
  std::array<int, 3> nodes() {
    std::array<int, 3> found{};
    EXPECT_EQ(move_pages(addresses(), nullptr, found.data()), 0);
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
  const NodeId node = first_node();
  EXPECT_EQ(set_policy(memory_, 3 * page_size(), MemoryPolicy::bind, {&node, 1}), EFAULT);
}

TEST_F(PolicyTest, TakesEveryPolicyOnANodeThatIsThere) {
  const NodeId node = first_node();
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

// On one node: pages move, stay and are counted. The guest tests move pages between nodes.
TEST_F(PolicyTest, PagesThatAreThere_HaveMoved) {
  ASSERT_EQ(populate(memory_, 2 * page_size()), 0);
  EXPECT_EQ(move_pages_to(addresses(), first_node()), std::uint64_t{1}) << "one is not there";
  ASSERT_EQ(populate(memory_, 3 * page_size()), 0);
  EXPECT_EQ(move_pages_to(addresses(), first_node()), std::uint64_t{0});
  EXPECT_TRUE(bind_pages({memory_, 3 * page_size()}, first_node()));
  for (const int found : nodes()) EXPECT_EQ(found, static_cast<int>(raw(first_node())));
}

TEST_F(PolicyTest, NodesThatAreNotThere_AreRefused) {
  const std::span<std::byte> pages(memory_, 3 * page_size());
  EXPECT_FALSE(move_pages_to(addresses(), NodeId{1000}).has_value());
  EXPECT_FALSE(bind_pages(pages, NodeId{900}).has_value());
  EXPECT_EQ(bind_pages(pages, NodeId{2000}).error().code, ErrorCode::unsupported);
}

TEST_F(PolicyTest, BoundThread_ReportsItsNodes) {
  ASSERT_TRUE(set_process_policy(MemoryPolicy::bind, {first_node()}));
  const auto bound = bound_nodes();
  ASSERT_TRUE(set_process_policy(MemoryPolicy::none));
  // Where a container forbids policies, there is none.
  if (bound) {
    EXPECT_EQ(*bound, std::vector{first_node()});
  }
  EXPECT_FALSE(bound_nodes());
}

TEST(KernelWeights, AreReadFromOneFilePerNode) {
  const test::TestFolder root;
  EXPECT_TRUE(kernel_weights(HostFiles(root.root())).empty());
  for (const auto& [name, text] : {std::pair{"node8", "1"},
                                   {"node0", "3"},
                                   {"auto", "false"},
                                   {"nodeX", "7"},
                                   {"node2", ""}}) {
    root.write(std::filesystem::path(kWeights) / name, text);
  }
  EXPECT_EQ(kernel_weights(HostFiles(root.root())),
            (std::map<NodeId, unsigned>{{NodeId{0}, 3}, {NodeId{8}, 1}}));
}

}  // namespace
}  // namespace headrace
