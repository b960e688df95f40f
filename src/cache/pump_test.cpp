// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kPumped = 4096;

std::vector<Extent> pages_of(const Source& source, std::uint64_t count) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < count; ++i) extents.push_back(source.at(i * kPumped, kPumped));
  return extents;
}

TEST(PumpTest, CopiesThatEndInsideSubmit_DoNotRecurse) {
  FakeOptions fake;
  fake.inside_chance = 1;
  Source source(20000 * 64);
  CacheRig rig({.fake = fake, .budget = 64_MiB});
  std::vector<Extent> plan;
  for (std::uint64_t i = 0; i < 20000; ++i) plan.push_back(source.at(i * 64, 64));
  const Prefetch prefetch = rig.cache->prefetch(plan);
  EXPECT_EQ(prefetch.progress().started, 20000u);  // and the stack did not overflow
}

TEST(PumpTest, ClearCancelsPlansAndAHandleMayOutliveTheCache) {
  Source source(8 * kPumped);
  CacheRig rig;
  Prefetch cleared = rig.cache->prefetch(pages_of(source, 4));
  rig.settle();
  rig.cache->clear();
  EXPECT_TRUE(cleared.progress().cancelled);
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
  Prefetch outliving = rig.cache->prefetch(pages_of(source, 8));
  rig.cache.reset();
  EXPECT_TRUE(outliving.progress().cancelled);
  outliving.cancel();
  EXPECT_EQ(Prefetch{}.progress().planned, 0u);
}

TEST(PumpTest, Reading_ListsTheObjectsThatMustLive) {
  Source one(4 * kPumped);
  Source other(kPumped);
  CacheRig rig;
  EXPECT_TRUE(rig.cache->reading().empty());
  rig.fake->hold(true);
  Block block = rig.cache->access(other.at(0, kPumped));
  const Prefetch prefetch = rig.cache->prefetch(pages_of(one, 2), {.window = Bytes{kPumped}});
  EXPECT_EQ(rig.cache->reading(), (std::vector{one.object().id(), other.object().id()}));
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(rig.cache->reading(), std::vector{one.object().id()}) << "the plan";
  rig.load(one.at(0, kPumped));
  rig.load(one.at(kPumped, kPumped));
  EXPECT_TRUE(rig.cache->reading().empty());
}

}  // namespace
}  // namespace headrace
