// SPDX-License-Identifier: Apache-2.0
// Strided plans: they do the same as lists of extents.
#include <gtest/gtest.h>

#include <vector>

#include "headrace/random.h"
#include "tests/support/cache_rig.h"
#include "tests/support/manual_waiting.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kPage = 4096;

Strided strided(const Source& source, std::uint64_t count, std::uint64_t stride = kPage) {
  return {.object = &source.object(), .length = Bytes{kPage}, .stride = stride, .count = count};
}

std::vector<Extent> listed(const Strided& all) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < all.count; ++i) {
    extents.push_back({all.object, all.offset + i * all.stride, all.length});
  }
  return extents;
}

class StridedPlanTest : public ::testing::Test {
 protected:
  StridedPlanTest() = default;
  ManualClock clock_;
  ManualWaiting waiting_{clock_};
};

// A consumer that skips extents and reads wide ranges. Nothing is evicted. Only a named plan skips
// extents that it has not yet made.
TEST_F(StridedPlanTest, EventsAndCounts_AreThoseOfAList) {
  const Source source(1024 * kPage);
  const Strided all = strided(source, 300, 3 * kPage);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::string seen[2];
    for (const bool strided : {false, true}) {
      CacheRig rig({.budget = 8_MiB, .clock = &clock_, .waiting = &waiting_});
      const PrefetchOptions options{.window = Bytes{8 * kPage}, .named = seed % 2 == 0};
      const Prefetch plan =
          strided ? rig.cache->prefetch(all, options) : rig.cache->prefetch(listed(all), options);
      rig.settle();
      Random random(seed);
      for (std::uint64_t at = 0; at < 300; ++at) {
        const std::uint64_t wide = random.chance(0.1) ? 10 : 1;
        const std::uint64_t skip = random.chance(0.02) ? random.below(options.named ? 4 : 40) : 0;
        at += skip;
        if (at + wide > 300) break;
        const Extent extent = source.at(at * 3 * kPage, (wide * 3 - 2) * kPage);
        (void)rig.cache->access(extent, {.plan = options.named ? &plan : nullptr});
        if (random.chance(0.8)) rig.settle();
        clock_.advance(std::chrono::microseconds{50});
      }
      rig.settle();
      seen[strided ? 1 : 0] = rig.event_names() + " " + std::to_string(plan.progress().used) +
                              " of " + std::to_string(plan.progress().planned);
    }
    EXPECT_TRUE(seen[0] == seen[1]) << seed;
  }
}

TEST_F(StridedPlanTest, BillionOfExtents_HasItemsOnlyNearTheirUse) {
  constexpr std::uint64_t kMany = 1'000'000'000;
  class Endless final : public Object {
   public:
    Endless() : Object(Bytes{kMany * kPage}, kHbm, nullptr) {}
  };
  const Endless source;
  CacheRig rig({.budget = Bytes{64 * kPage}, .clock = &clock_, .waiting = &waiting_});
  for (const EngineId engine : {kCpuA, kCpuB}) {
    rig.fake->break_engine(engine, Error{ErrorCode::io, "no bytes"});
  }
  const Strided all{.object = &source, .length = Bytes{kPage}, .stride = kPage, .count = kMany};
  const Prefetch plan = rig.cache->prefetch(all, {.window = Bytes{4 * kPage}, .named = true});
  rig.settle();
  EXPECT_EQ(plan.progress().planned, kMany);
  EXPECT_EQ(rig.cache->reading(), std::vector{source.id()});
  for (const std::uint64_t at : {kMany / 2, kMany - 1}) {
    (void)rig.cache->access({&source, at * kPage, Bytes{kPage}}, {.plan = &plan});
    rig.settle();
  }
  EXPECT_EQ(plan.progress().used, 2u);
  EXPECT_LE(rig.cache->stats().prefetched, 16u);
}

TEST_F(StridedPlanTest, ExtentsOutsideTheirObject_AreInvalid) {
  const Source source(10 * kPage);
  CacheRig rig;
  const auto invalid = [&](const Strided& all) {
    return rig.cache->prefetch(all).progress().invalid;
  };
  EXPECT_EQ(invalid(strided(source, 10)), 0u);
  EXPECT_EQ(invalid(strided(source, 12)), 2u);
  EXPECT_EQ(invalid(strided(source, 1, ~std::uint64_t{0})), 0u);
  EXPECT_EQ(invalid(strided(source, ~std::uint64_t{0}, ~std::uint64_t{0})), ~std::uint64_t{1});
  EXPECT_EQ(invalid(strided(source, 3, 0)), 3u);
  EXPECT_EQ(invalid({.length = 1_B, .stride = 1, .count = 5}), 5u);
  EXPECT_EQ(invalid({.object = &source.object(), .stride = 1, .count = 5}), 5u);
  EXPECT_EQ(invalid({.object = &source.object(),
                     .offset = 11 * kPage,
                     .length = 1_B,
                     .stride = 1,
                     .count = 5}),
            5u);
  rig.settle();
}

TEST_F(StridedPlanTest, UnlimitedWindow_FetchesAllAhead) {
  const Source source(64 * kPage);
  CacheRig rig({.budget = Bytes{16 * kPage}, .observe = false});
  const PrefetchOptions options{.window = Bytes{~std::uint64_t{0}}, .named = true};
  const Prefetch plan = rig.cache->prefetch(strided(source, 64), options);
  for (std::uint64_t i = 0; i < 64; ++i) {
    rig.settle();
    (void)rig.cache->access(source.at(i * kPage, kPage), {.plan = &plan});
  }
  EXPECT_EQ(rig.cache->stats().misses, 0u);
}

// Else their positions would begin again at 0.
TEST_F(StridedPlanTest, MoreBytesThanPositionsHave_AreInvalid) {
  class Endless final : public Object {
   public:
    Endless() : Object(Bytes{std::uint64_t{1} << 62}, kHbm, nullptr) {}
  };
  const Endless source;
  CacheRig rig;
  constexpr std::uint64_t kMany = std::uint64_t{1} << 60;
  const Strided all{.object = &source, .length = 1_MiB, .stride = 1, .count = kMany};
  EXPECT_EQ(rig.cache->prefetch(all).progress().invalid, kMany - (std::uint64_t{1} << 43));
}

// Blocks that were cached before the plan report their uses to it.
TEST_F(StridedPlanTest, CachedBlocks_ReportTheirUses) {
  Source source(32 * kPage);
  CacheRig rig({.budget = Bytes{64 * kPage}, .observe = false});
  for (std::uint64_t i = 0; i < 32; ++i) rig.load(source.at(i * kPage, kPage));
  const Prefetch plan = rig.cache->prefetch(strided(source, 32), {.window = Bytes{4 * kPage}});
  for (std::uint64_t i = 0; i < 32; ++i) (void)rig.cache->access(source.at(i * kPage, kPage));
  EXPECT_EQ(plan.progress().used, 32u);
  EXPECT_EQ(rig.cache->stats().misses, 32u);
}

}  // namespace
}  // namespace headrace
