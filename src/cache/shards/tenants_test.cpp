// SPDX-License-Identifier: Apache-2.0
// Tenants of a sharded cache.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

class ShardedTenantsTest : public testing::TestWithParam<std::size_t> {
 protected:
  Source source{8 << 20};
  CacheRig rig{{.cache = {.tenants = {{.name = "a", .least = 0.5}, {.name = "b", .most = 0.25}},
                          .shards = GetParam()},
                .budget = 1_MiB,
                .observe = false}};
  const AccessOptions a{.tenant = *rig.cache->tenant("a")};
  const AccessOptions b{.tenant = *rig.cache->tenant("b")};
};

TEST_P(ShardedTenantsTest, Shares_HoldInAllShardsTogether) {
  for (std::uint64_t i = 0; i < 1024; ++i) {
    for (const AccessOptions* options : {&a, &b}) {
      const Block block =
          rig.cache->access(source.at(i * 4096 + (options == &a ? 4 << 20 : 0), 4096), *options);
      rig.settle();
    }
  }
  const std::vector<CacheStats::Tenant> tenants = rig.cache->stats().tenants;
  EXPECT_LE(tenants[2].bytes_used, 256_KiB);
  EXPECT_GE(tenants[2].bytes_used, 200_KiB);
  EXPECT_GE(tenants[1].bytes_used, 512_KiB);
}

TEST_P(ShardedTenantsTest, EachAccess_CountsOnceForItsTenant) {
  const Extent wide = source.at(0, 12288);  // over several stretches of 4 KiB with 4 shards
  std::vector<Block> blocks(2);
  rig.cache->access(std::vector{wide, source.at(65536, 4096)}, blocks, a);
  rig.settle();
  EXPECT_TRUE(rig.cache->access(source.at(4096, 4096), b).hit());
  EXPECT_TRUE(rig.cache->access(wide, b).hit());
  std::vector<std::byte> bytes(4096);
  ASSERT_TRUE(rig.cache->read(source.at(0, 4096), bytes, {.block = 4_KiB, .access = b}));
  const std::vector<CacheStats::Tenant> tenants = rig.cache->stats().tenants;
  EXPECT_EQ(tenants[1].misses, 2u);
  EXPECT_EQ(tenants[1].hits, 0u);
  EXPECT_EQ(tenants[2].hits, 3u);
  EXPECT_EQ(tenants[1].bytes_pinned, 16_KiB);
}

// Plans join small extents, so that blocks of tenants differ in size.
TEST(TenantPriorityTest, LargerBlocksOfALowerPriority_GoFirst) {
  CacheRig rig(
      {.cache = {.tenants = {{.name = "low", .priority = Priority::prefetch}, {.name = "a"}}},
       .budget = 1_MiB,
       .observe = false});
  const Source source(4 << 20);
  const auto fill = [&](const char* tenant, std::uint64_t begin, std::uint64_t length) {
    for (std::uint64_t at = 0; at < 512 << 10; at += length) {
      (void)rig.cache->access(source.at(begin + at, length),
                              {.tenant = *rig.cache->tenant(tenant)});
      rig.settle();
    }
  };
  fill("a", 0, 4096);
  fill("low", 1 << 20, 16384);
  fill("a", 2 << 20, 4096);
  const std::vector<CacheStats::Tenant> tenants = rig.cache->stats().tenants;
  EXPECT_LE(tenants[1].bytes_used, 32_KiB);
  EXPECT_EQ(tenants[2].evictions, 0u);
}

// Four blocks in a loop: LRU hits three of four times if it has space for them.
TEST(CacheCurveTest, Loop_NeedsItsBytes) {
  for (const std::size_t shards : {1, 4}) {
    Source source{1 << 20};
    CacheRig rig({.cache = {.curve = true, .shards = shards}, .observe = false});
    ASSERT_TRUE(rig.cache->miss_ratio_curve()->empty());
    for (std::uint64_t i = 0; i < 16; ++i) {
      const Block block = rig.cache->access(source.at(i % 4 * 4096, 4096));
      rig.settle();
    }
    const Block none = rig.cache->access(source.at(0, 0));
    const Block invalid = rig.cache->access({});
    const auto curve = *rig.cache->miss_ratio_curve();
    ASSERT_EQ(curve.size(), 1u);
    EXPECT_EQ(curve[0].budget, 16_KiB);
    EXPECT_EQ(curve[0].misses, 4.0 / 16) << "accesses without bytes do not count";
    EXPECT_TRUE(rig.cache->stats().tenants.empty());
  }
}

TEST(CacheCurveTest, CacheWithoutSample_HasNoCurve) {
  const CacheRig rig;
  EXPECT_EQ(rig.cache->miss_ratio_curve().error().code, ErrorCode::invalid);
}

INSTANTIATE_TEST_SUITE_P(Shards, ShardedTenantsTest, testing::Values(1, 4));

}  // namespace
}  // namespace headrace
