// SPDX-License-Identifier: Apache-2.0
#include "memory/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "headrace/buffer.h"
#include "headrace/process.h"
#include "memory/memory_testing.h"

namespace headrace {
namespace {

// On one node: pages move, stay and are counted. The guest tests move pages between nodes.
class MigratePagesTest : public testing::Test {
 protected:
  Machine machine_ = this_host();
  std::unique_ptr<Buffer> buffer_ = allocate(machine_, 64_KiB, on_first(machine_)).value();
  NodeId node_ = machine_.nodes.front().id;
};

TEST_F(MigratePagesTest, PagesThatAreThereHaveMoved) {
  std::vector<void*> addresses;
  for (std::size_t i = 0; i < 16; ++i) addresses.push_back(buffer_->bytes().data() + i * 4096);
  EXPECT_EQ(move_pages_to(addresses, node_), std::uint64_t{0});
  EXPECT_TRUE(bind_pages(buffer_->bytes(), node_).has_value());
  EXPECT_EQ(where(buffer_->bytes())->pages.at(node_), 16u);
}

TEST_F(MigratePagesTest, PagesThatAreNotThereStay) {
  madvise(buffer_->bytes().data(), 4096, MADV_DONTNEED);
  void* const addresses[] = {buffer_->bytes().data(), buffer_->bytes().data() + 4096};
  EXPECT_EQ(move_pages_to(addresses, node_), std::uint64_t{1});
}

TEST_F(MigratePagesTest, NodesThatAreNotThereAreRefused) {
  void* const addresses[] = {buffer_->bytes().data()};
  EXPECT_FALSE(move_pages_to(addresses, NodeId{1000}).has_value());
  EXPECT_FALSE(bind_pages(buffer_->bytes(), NodeId{900}).has_value());
  EXPECT_EQ(bind_pages(buffer_->bytes(), NodeId{2000}).error().code, ErrorCode::unsupported);
}

TEST_F(MigratePagesTest, BoundThread_ReportsItsNodes) {
  ASSERT_TRUE(set_process_policy(MemoryPolicy::bind, {node_}));
  const auto bound = bound_nodes();
  ASSERT_TRUE(set_process_policy(MemoryPolicy::none));
  // Where a container forbids policies, there is none.
  if (bound) {
    EXPECT_EQ(*bound, std::vector{node_});
  }
  EXPECT_FALSE(bound_nodes());
}

}  // namespace
}  // namespace headrace
