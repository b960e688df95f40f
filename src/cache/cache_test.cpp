// SPDX-License-Identifier: Apache-2.0
// The handles: what a Block gives and when.
#include "headrace/cache.h"

#include <gtest/gtest.h>

#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

TEST(BlockTest, AMissIsServedByTheSourceUntilTheCopyIsReady) {
  Source source(100000);
  CacheRig rig;
  const Extent extent = source.at(100, 5000);
  const Block block = rig.cache->access(extent);
  EXPECT_EQ(block.state(), BlockState::filling);
  EXPECT_EQ(block.extent(), extent);
  EXPECT_EQ(block.node(), kHbm);
  ASSERT_TRUE(block.now());
  EXPECT_EQ(block.now()->data(), extent.memory());
  const auto copy = block.wait();
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_FALSE(source.holds(copy->data()));
  EXPECT_TRUE(source.equals(extent, *copy));
  EXPECT_EQ(block.now()->data(), copy->data());
  EXPECT_EQ(block.state(), BlockState::ready);
  EXPECT_EQ(block.node(), kDram);
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.blocks, 1u);
  EXPECT_EQ(stats.bytes_used, 5000_B);
  EXPECT_EQ(stats.bytes_pinned, 5000_B);
  EXPECT_EQ(stats.wait_time.count, 1u);
  EXPECT_EQ(stats.copy_latency.count, 1u);
}

TEST(BlockTest, EmptyInvalidAndDefaultBlocks) {
  Source source(100);
  CacheRig rig;
  const Block empty = rig.cache->access(source.at(100, 0));
  EXPECT_EQ(empty.state(), BlockState::ready);
  EXPECT_TRUE(empty.wait().has_value());
  EXPECT_FALSE(empty.node());
  for (const Extent& extent : {source.at(50, 51), source.at(~std::uint64_t{0}, 2), Extent{}}) {
    const Block invalid = rig.cache->access(extent);
    EXPECT_EQ(invalid.state(), BlockState::absent);
    EXPECT_FALSE(invalid.now());
    EXPECT_EQ(invalid.wait().error().code, ErrorCode::invalid);
    rig.cache->invalidate(extent);  // bad input is harmless
  }
  EXPECT_EQ(Block{}.wait().error().code, ErrorCode::invalid);
  EXPECT_EQ(Block{}.state(), BlockState::absent);
  EXPECT_FALSE(Block{}.clone().now());
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.hits + stats.misses, 0u);
}

TEST(BlockTest, ClonesPinAndMovesDoNot) {
  Source source(8192);
  CacheRig rig({.budget = 4096_B});
  Block first = rig.cache->access(source.at(0, 4096));
  rig.settle();
  Block second = first.clone();
  Block moved = std::move(first);
  EXPECT_EQ(first.state(), BlockState::absent);
  moved = Block{};
  EXPECT_EQ(rig.cache->stats().bytes_pinned, 4096_B);
  const Block refused = rig.cache->access(source.at(4096, 4096));
  EXPECT_EQ(refused.state(), BlockState::absent);
  EXPECT_TRUE(source.equals(second.extent(), *second.now()));
  second = Block{};
  EXPECT_EQ(rig.cache->stats().bytes_pinned, 0_B);
  const Block taken = rig.cache->access(source.at(4096, 4096));
  EXPECT_EQ(taken.state(), BlockState::filling);
  EXPECT_EQ(rig.cache->stats().evictions, 1u);
}

}  // namespace
}  // namespace headrace
