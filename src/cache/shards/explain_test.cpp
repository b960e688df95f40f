// SPDX-License-Identifier: Apache-2.0
#include "headrace/cache/explain.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/cache_rig.h"
#include "tests/support/manual_waiting.h"

namespace headrace {
namespace {

using namespace test;
using std::chrono::microseconds;

constexpr Bytes kLength = 64_KiB;

// Sources on the node hbm, copies on the node dram.
class CacheExplainTest : public testing::Test {
 protected:
  CacheExplanation explain(const CacheRig& rig, std::uint64_t offset = 0) const {
    auto found = rig.cache->explain(source_.at(offset, kLength.value), kDram);
    EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
    return found ? *found : CacheExplanation{};
  }
  // Copies take 100 us and 1 us for each 1000 bytes; reads 1 us for each of these numbers of bytes.
  static void set_speeds(CacheRig& rig, double of_source, double of_copy) {
    rig.machine.copy_rates = {{.engine = kCpuA,
                               .from = kHbm,
                               .to = kDram,
                               .latency = microseconds{100},
                               .bandwidth = {1e9},
                               .source = "test"},
                              {.engine = kCpuB,
                               .from = kHbm,
                               .to = kDram,
                               .latency = microseconds{100},
                               .bandwidth = {1e8},
                               .source = "test"}};
    for (Node& node : rig.machine.nodes) {
      node.access = {{.initiator = kDram,
                      .read_latency = microseconds{node.id == kHbm ? 3 : 2},
                      .write_latency = {},
                      .read_bandwidth = BytesPerSecond{node.id == kHbm ? of_source : of_copy},
                      .write_bandwidth = {},
                      .source = "test",
                      .measured = true}};
    }
  }
  static bool says(const CacheExplanation& all, const std::string& words) {
    if (all.text.find(words) != std::string::npos) return true;
    ADD_FAILURE() << "'" << all.text << "' does not say '" << words << "'";
    return false;
  }

  const Source source_{1 << 20};
};

TEST_F(CacheExplainTest, Block_IsAbsentThenInFlightThenCached) {
  CacheRig rig;
  EXPECT_EQ(explain(rig).state, BlockState::absent);
  EXPECT_EQ(explain(rig).node, kDram);
  says(explain(rig), "not cached; a copy to node 0 (dram) takes an unknown time");
  {
    const Block block = rig.cache->access(source_.at(0, kLength.value));
    EXPECT_EQ(explain(rig).state, BlockState::filling);
    says(explain(rig), "being copied to node 0 (dram)");
    rig.settle();
  }
  EXPECT_EQ(explain(rig).state, BlockState::ready);
  EXPECT_EQ(explain(rig).node, kDram);
  EXPECT_FALSE(explain(rig).dirty);
  says(explain(rig), "cached on node 0 (dram)");
  EXPECT_EQ(rig.cache->stats().misses, 1u) << "explaining is no access";
  EXPECT_EQ(rig.cache->stats().hits, 0u);
}

TEST_F(CacheExplainTest, BlockOfAnotherShard_IsFound) {
  CacheRig rig({.cache = {.shards = 8}, .budget = 8_MiB, .observe = false});
  rig.load(source_.at(0, 256 << 10));
  for (std::uint64_t at = 0; at < (256 << 10); at += kLength.value) {
    EXPECT_EQ(explain(rig, at).state, BlockState::ready) << at;
  }
  EXPECT_EQ(explain(rig, 256 << 10).state, BlockState::absent);
}

TEST_F(CacheExplainTest, ChangedBlock_IsDirty) {
  std::vector<std::byte> bytes(kLength.value);
  const MemoryRange target{std::span(bytes), kHbm};
  CacheRig rig({.cache = {.writable = true}, .observe = false});
  const Extent page{&target, 0, kLength};
  {
    Block block = rig.cache->access(page, {.write = true});
    rig.settle();
    ASSERT_TRUE(block.wait_to_write().has_value());
  }
  const auto found = rig.cache->explain(page);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->dirty);
  says(*found, "cached on node 0 (dram), newer than its source");
  EXPECT_TRUE(rig.cache->discard(page).has_value());
}

TEST_F(CacheExplainTest, ExtentWithoutACopy_HasTheReason) {
  CacheRig rig({.budget = 128_KiB});
  const auto large = rig.cache->explain(source_.at(0, 256 << 10));
  ASSERT_TRUE(large.has_value() && large->refusal);
  EXPECT_EQ(large->refusal->code, ErrorCode::exhausted);
  EXPECT_FALSE(large->node);
  says(*large, "not cached: the block of 256 KiB exceeds the budget of 128 KiB on node 0");
  {
    const Block one = rig.cache->access(source_.at(0, kLength.value));
    const Block two = rig.cache->access(source_.at(kLength.value, kLength.value));
    rig.settle();
    const Block none = rig.cache->access(source_.at(2 * kLength.value, kLength.value));
    EXPECT_EQ(none.state(), BlockState::absent);
    says(explain(rig, 2 * kLength.value), "not cached: no space for 64 KiB on node 0");
  }
  EXPECT_FALSE(explain(rig, 2 * kLength.value).refusal) << "there is space again";
  EXPECT_FALSE(rig.cache->explain(source_.at(1 << 20, 1)).has_value());
  EXPECT_FALSE(rig.cache->explain(source_.at(0, 0)).has_value());
  EXPECT_FALSE(rig.cache->explain({}).has_value());
}

TEST_F(CacheExplainTest, SourceThatIsAsFast_HasTheReasonOfThePolicy) {
  CacheRig rig;
  auto cache = Cache::create(*rig.mover, {.budgets = {{kDram, 1_MiB}}});
  ASSERT_TRUE(cache.has_value());
  const auto found = (*cache)->explain(source_.at(0, kLength.value), kDram);
  ASSERT_TRUE(found.has_value() && found->refusal);
  EXPECT_EQ(found->refusal->code, ErrorCode::absent);
  says(*found, "is faster than node");
}

TEST_F(CacheExplainTest, Copy_PaysAfterTheUsesThatSaveItsTime) {
  CacheRig rig;
  set_speeds(rig, 1e9, 2e9);
  const CacheExplanation half = explain(rig);
  EXPECT_EQ(half.copy_time, Nanoseconds{100'000 + 65'536});
  EXPECT_EQ(half.saved_per_use, Nanoseconds{32'768 + 1000});
  EXPECT_EQ(half.uses_to_pay, 5u);
  says(half, "a copy to node 0 (dram) takes");
  says(half, "pays from 5 uses on");
  set_speeds(rig, 2e9, 1e9);
  EXPECT_LT(explain(rig).saved_per_use->count(), 0);
  EXPECT_FALSE(explain(rig).uses_to_pay);
  says(explain(rig), "never pays");
}

TEST_F(CacheExplainTest, SourceThatNoCpuAddresses_PaysFromTheFirstUse) {
  CacheRig rig;
  set_speeds(rig, 1e9, 2e9);
  for (CopyRate& rate : rig.machine.copy_rates) rate.from = kDisk;
  const Opaque file(1_MiB);
  const auto found = rig.cache->explain({&file, 0, kLength});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->uses_to_pay, 1u);
  EXPECT_EQ(found->saved_per_use, found->copy_time);
  says(*found, "pays from 1 use on");
}

TEST_F(CacheExplainTest, PlannedExtent_HasItsNextUse) {
  ManualClock clock;
  ManualWaiting waiting(clock);
  CacheRig rig({.budget = 4_MiB, .clock = &clock, .waiting = &waiting, .observe = false});
  EXPECT_FALSE(explain(rig).planned);
  std::vector<Extent> extents;
  for (std::uint64_t at = 0; at < (1 << 20); at += kLength.value) {
    extents.push_back(source_.at(at, kLength.value));
  }
  const Prefetch plan = rig.cache->prefetch(extents);
  rig.settle();
  EXPECT_TRUE(explain(rig).planned);
  for (std::size_t i = 0; i < 5; ++i) {
    says(explain(rig, 15 * kLength.value), i < 3 ? "use at an unknown time" : "planned use in 1");
    (void)rig.cache->access(extents[i], {.plan = &plan});
    clock.advance(std::chrono::milliseconds{i == 0 ? 20 : 1});  // the first waits for its copy
  }
  EXPECT_NEAR(seconds(*explain(rig, 15 * kLength.value).next_use), 0.01, 1e-6);
  std::optional<Nanoseconds> first;
  for (std::uint64_t at = 9; at < 16; ++at) {
    const auto next = explain(rig, at * kLength.value).next_use;
    if (!first || *next < *first) first = next;
  }
  EXPECT_EQ(rig.cache->explain(source_.at(9 * kLength.value, 7 * kLength.value))->next_use, first);
  EXPECT_FALSE(explain(rig).planned) << "used";
  clock.advance(std::chrono::minutes{1});
  EXPECT_TRUE(explain(rig, 15 * kLength.value).planned);
  EXPECT_FALSE(explain(rig, 15 * kLength.value).next_use) << "the consumer has paused";
}

TEST_F(CacheExplainTest, PlanOfShards_IsFound) {
  CacheRig rig({.cache = {.shards = 4}, .budget = 4_MiB, .observe = false});
  const Strided all{&source_.object(), 0, kLength, kLength.value, 16};
  const Prefetch plan = rig.cache->prefetch(all);
  for (std::uint64_t i = 0; i < 16; ++i) EXPECT_TRUE(explain(rig, i * kLength.value).planned);
}

}  // namespace
}  // namespace headrace
