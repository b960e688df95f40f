// SPDX-License-Identifier: Apache-2.0
// The handles: the bytes of a Block; counts and events; shards.
#include "headrace/cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "cache/shards/shards.h"
#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

TEST(BlockTest, MissedBlock_GivesTheSourceUntilTheCopyIsReady) {
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
    if (extent.offset == 50) {
      EXPECT_EQ(invalid.wait().error().message,
                "the extent of 51 bytes from offset 50 does not lie inside its object of 100 "
                "bytes; check offset and length");
    }
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

TEST(CacheStatsTest, TheObserverSeesTheExactSequence) {
  Source source(8192);
  CacheRig rig({.budget = 4096_B});
  const Extent a = source.at(0, 4096);
  const Extent b = source.at(4096, 4096);
  {
    const Block first = rig.cache->access(a);
    const Block second = rig.cache->access(a);
    rig.settle();
  }
  (void)rig.cache->access(a);
  rig.load(b);
  rig.cache->invalidate(b);
  rig.fake->break_engine(kCpuA, Error{ErrorCode::io, "broken"});
  rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken"});
  rig.load(a);
  EXPECT_EQ(rig.event_names(),
            "miss fill_started inflight_hit ready hit evicted miss fill_started ready invalidated "
            "miss fill_started failed");
  EXPECT_EQ(rig.events[5].extent, a);
  EXPECT_EQ(rig.events[9].extent, b);
  EXPECT_FALSE(rig.events[1].by_prefetch);
  for (std::size_t i = 1; i < rig.events.size(); ++i) {
    EXPECT_LE(rig.events[i - 1].time, rig.events[i].time);
  }
}

TEST(CacheStatsTest, PercentilesAreUnknownUntilSomethingWasCounted) {
  Source source(4096);
  ManualClock clock;
  CacheRig rig({.clock = &clock});
  EXPECT_FALSE(rig.cache->stats().wait_time.p50);
  EXPECT_FALSE(rig.cache->stats().copy_latency.p99);
  rig.fake->hold(true);
  const Block block = rig.cache->access(source.at(0, 4096));
  clock.advance(Nanoseconds{1000});
  rig.fake->hold(false);
  rig.settle();
  const CacheStats stats = rig.cache->stats();
  EXPECT_FALSE(stats.wait_time.p50);  // nobody had to wait
  EXPECT_EQ(stats.copy_latency.count, 1u);
  EXPECT_GE(*stats.copy_latency.p50, 1000u);
  EXPECT_LE(*stats.copy_latency.p50, 1063u);  // the histogram's buckets are 1/16 wide
}

// A wait in slices, by several wait() calls, is one wait.
TEST(CacheStatsTest, WaitInSlices_CountsOncePerHandle) {
  Source source(4096);
  CacheRig rig;
  rig.fake->hold(true);
  const Block block = rig.cache->access(source.at(0, 4096));
  const auto slice = std::chrono::milliseconds{2};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(block.wait(slice).error().code, ErrorCode::timed_out);
  EXPECT_EQ(rig.cache->stats().wait_time.count, 0u);
  rig.fake->hold(false);
  EXPECT_TRUE(block.wait());
  EXPECT_TRUE(block.wait());
  const auto waits = rig.cache->stats().wait_time;
  EXPECT_EQ(waits.count, 1u);
  EXPECT_GE(waits.p50.value_or(0), 6'000'000u * 9 / 10);  // the buckets are rounded
}

// A 64th of a shard's budget of 1 MiB.
constexpr std::uint64_t kStretch = 16 << 10;
constexpr std::uint64_t kStretches = 256;  // what fits in the budget

// Four shards of 1 MiB. Hits take no lock.
CacheRig::Options four(CacheOptions cache = {}) {
  cache.shards = 4;
  cache.slab = 256_KiB;
  return {.cache = std::move(cache), .budget = 4_MiB, .observe = false};
}

class ShardsTest : public testing::Test {
 protected:
  // The block is ready and has the right bytes.
  void expect_hit(const Extent& extent, const AccessOptions& options = {}) {
    const Block block = rig_.cache->access(extent, options);
    EXPECT_TRUE(block.hit());
    ASSERT_TRUE(block.now().has_value());
    EXPECT_TRUE(source_.equals(extent, *block.now()));
    EXPECT_FALSE(source_.holds(block.now()->data()));
  }
  std::uint64_t misses() const { return rig_.cache->stats().misses; }

  Source source_{kStretches * kStretch};
  CacheRig rig_{four()};
};

TEST_F(ShardsTest, BlockOverSeveralStretches_ServesExtentsInLaterOnes) {
  rig_.load(source_.at(kStretch - 512, 3 * kStretch));
  for (const std::uint64_t at :
       {kStretch, 2 * kStretch + 4096, 3 * kStretch, 4 * kStretch - 1024}) {
    expect_hit(source_.at(at, 512));
  }
  EXPECT_EQ(misses(), 1u);
  // Not beyond its end, nor in another object at the same offset.
  const Source other(64 * kStretch);
  EXPECT_FALSE(rig_.cache->access(source_.at(4 * kStretch, 512)).hit());
  EXPECT_FALSE(rig_.cache->access(other.at(2 * kStretch, 512)).hit());
  rig_.settle();
}

TEST_F(ShardsTest, BlockOverMoreStretchesThanShards_ServesAllOfThem) {
  for (std::uint64_t first = 0; first < 64; first += 16) {
    rig_.load(source_.at(first * kStretch, 15 * kStretch));
    for (std::uint64_t i = 0; i < 15; ++i) expect_hit(source_.at((first + i) * kStretch, 512));
  }
  EXPECT_EQ(misses(), 4u);
}

TEST_F(ShardsTest, BlockOverSeveralStretches_IsJoinedInFlight) {
  rig_.fake->hold(true);
  const Block whole = rig_.cache->access(source_.at(0, 2 * kStretch));
  const Block part = rig_.cache->access(source_.at(kStretch, 512));
  EXPECT_EQ(rig_.cache->stats().inflight_hits, 1u);
  rig_.fake->hold(false);
  rig_.settle();
  ASSERT_TRUE(part.now().has_value());
  EXPECT_EQ(part.now()->data(), whole.now()->data() + kStretch);
}

TEST_F(ShardsTest, ManyExtents_GiveTheSameAsSingleOnes) {
  rig_.load(source_.at(kStretch, 2 * kStretch));
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 40; ++i) extents.push_back(source_.at(i * kStretch / 2, 512));
  std::vector<Block> blocks(extents.size());
  rig_.cache->access(extents, blocks);
  rig_.settle();
  for (std::uint64_t i = 0; i < extents.size(); ++i) {
    EXPECT_EQ(blocks[i].hit(), i >= 2 && i < 6) << i;
    ASSERT_TRUE(blocks[i].now().has_value());
    EXPECT_TRUE(source_.equals(extents[i], *blocks[i].now()));
  }
}

TEST_F(ShardsTest, Invalidate_ReachesAllShards) {
  for (std::uint64_t i = 0; i < 8; ++i) rig_.load(source_.at(i * kStretch, 512));
  rig_.load(source_.at(9 * kStretch, 3 * kStretch));
  rig_.cache->invalidate(source_.at(2 * kStretch, 9 * kStretch));  // the last one in part
  EXPECT_EQ(rig_.cache->stats().blocks, 2u);
  EXPECT_EQ(rig_.cache->stats().invalidations, 7u);
  EXPECT_FALSE(rig_.cache->access(source_.at(11 * kStretch, 512)).hit());
  rig_.settle();
}

TEST_F(ShardsTest, Forget_WaitsForAllShards) {
  rig_.fake->hold(true);
  {
    const Block a = rig_.cache->access(source_.at(0, 512));
    const Block b = rig_.cache->access(source_.at(kStretch, 512));
  }
  EXPECT_EQ(rig_.cache->reading(), std::vector{source_.object().id()});
  const Status still = rig_.cache->forget(source_.object(), Nanoseconds{0});
  ASSERT_FALSE(still.has_value());
  EXPECT_EQ(still.error().code, ErrorCode::timed_out);
  rig_.fake->hold(false);
  EXPECT_TRUE(rig_.cache->forget(source_.object()).has_value());
  EXPECT_TRUE(rig_.cache->reading().empty());
}

TEST_F(ShardsTest, Plan_IsFetchedByAllShards) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 16; ++i) extents.push_back(source_.at(i * kStretch, 4096));
  const Prefetch plan = rig_.cache->prefetch(extents, {.named = true});
  rig_.settle();
  EXPECT_EQ(plan.progress().planned, 16u);
  EXPECT_EQ(plan.progress().started, 16u);
  for (const Extent& extent : extents) expect_hit(extent);  // names no plan
  EXPECT_EQ(plan.progress().used, 0u);
  for (const Extent& extent : extents) expect_hit(extent, {.plan = &plan});
  EXPECT_EQ(plan.progress().used, 16u);
  EXPECT_FALSE(plan.progress().cancelled);
}

TEST_F(ShardsTest, PlanWindow_IsSharedByTheShards) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 64; ++i) extents.push_back(source_.at(i * kStretch, 4096));
  const Prefetch plan = rig_.cache->prefetch(extents, {.window = 64_KiB});
  rig_.settle();
  EXPECT_EQ(plan.progress().started, 16u);
}

TEST_F(ShardsTest, CancelledPlan_EndsInAllShards) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 16; ++i) extents.push_back(source_.at(i * kStretch, 4096));
  Prefetch plan = rig_.cache->prefetch(extents);
  rig_.settle();
  plan.cancel();
  EXPECT_TRUE(plan.progress().cancelled);
  rig_.cache->flush();
  EXPECT_EQ(rig_.cache->stats().blocks, 0u);
  EXPECT_EQ(rig_.cache->stats().wasted_bytes, Bytes{16 * 4096});
}

TEST_F(ShardsTest, Budget_IsTheSumOfAllShards) {
  for (std::uint64_t i = 0; i < kStretches; ++i) rig_.load(source_.at(i * kStretch, kStretch));
  EXPECT_EQ(rig_.cache->stats().bytes_used, 4_MiB);
  ASSERT_TRUE(rig_.cache->resize(kDram, 1_MiB + 3_B).has_value());
  EXPECT_LE(rig_.cache->stats().bytes_used, 1_MiB + 3_B);
  EXPECT_GE(rig_.cache->stats().bytes_used, 768_KiB);
  const Status absent = rig_.cache->resize(kHbm, 1_MiB);
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code, ErrorCode::absent);
}

TEST_F(ShardsTest, BlockLargerThanAShardsPart_NamesTheShards) {
  const Opaque large(2_MiB);
  const auto bytes = rig_.cache->access(whole(large)).wait();
  ASSERT_FALSE(bytes.has_value());
  EXPECT_NE(bytes.error().message.find("1 MiB on node 0 (one of 4 shards)"), std::string::npos)
      << bytes.error().message;
}

TEST_F(ShardsTest, FullShard_RefusesWhileOthersHaveSpace) {
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < kStretches; ++i) {
    if (i != 1) held.push_back(rig_.cache->access(source_.at(i * kStretch, kStretch)));
  }
  rig_.settle();
  EXPECT_TRUE(rig_.cache->access(source_.at(4096, 4096)).hit());
  // Neighbours are in different shards.
  EXPECT_EQ(rig_.cache->access(source_.at(1, kStretch)).state(), BlockState::absent);
  EXPECT_EQ(rig_.cache->access(source_.at(kStretch, kStretch)).state(), BlockState::filling);
  rig_.settle();
}

TEST_F(ShardsTest, Strides_MeetAllShards) {
  // Half of the budget, so twice the part of a shard.
  const Source large(2 * kStretches * kStretch);
  const auto at = [&](std::uint64_t i) { return large.at(i * 4 * kStretch, kStretch); };
  for (std::uint64_t i = 0; i < kStretches / 2; ++i) rig_.load(at(i));
  EXPECT_EQ(rig_.cache->stats().evictions, 0u);
  for (std::uint64_t i = 0; i < kStretches / 2; ++i) {
    EXPECT_TRUE(rig_.cache->access(at(i)).hit()) << i;
  }
  rig_.settle();
}

TEST_F(ShardsTest, MissesOfOneCall_AreSubmittedTogether) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 16; ++i) extents.push_back(source_.at(i * kStretch, 512));
  extents.push_back(source_.at(20 * kStretch - 512, 1024));
  std::vector<Block> blocks(extents.size());
  rig_.cache->access(std::span(extents).first(8), std::span(blocks).first(8));
  EXPECT_EQ(rig_.fake->stats().submits, 1u);
  rig_.cache->access(std::span(extents).subspan(8), std::span(blocks).subspan(8));
  EXPECT_EQ(rig_.fake->stats().submits, 2u);
  rig_.settle();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(source_.equals(extents[i], *blocks[i].wait()));
  }
}

TEST_F(ShardsTest, WideAccess_UsesThePlannedItemsOfAllShards) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 32; ++i)
    extents.push_back(source_.at(i * kStretch / 4, kStretch / 4));
  const Prefetch plan = rig_.cache->prefetch(extents, {.named = true});
  rig_.settle();
  (void)rig_.cache->access(source_.at(0, 8 * kStretch), {.plan = &plan});
  EXPECT_EQ(plan.progress().used, 32u);
  rig_.settle();
}

TEST_F(ShardsTest, AccessOverMoreStretchesThanShards_UsesAllPlannedItems) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 60; ++i) extents.push_back(source_.at(i * kStretch, 4096));
  const Prefetch plan = rig_.cache->prefetch(extents, {.named = true});
  rig_.settle();
  (void)rig_.cache->access(source_.at(0, 60 * kStretch), {.plan = &plan});
  EXPECT_EQ(plan.progress().used, 60u);
  rig_.settle();
}

// A callback in the third shard starts a copy in the first, which the end has seen at rest. The
// observer holds the end up in the second shard until the callback is over.
TEST(ShardsEndTest, CallbackOfThePoller_MayAccessAShardThatWasAtRest) {
  const auto await = [](const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::yield();
  };
  std::vector<Extent> evicted;
  std::atomic<bool> ends{false};
  std::atomic<bool> reached{false};
  std::atomic<bool> called{false};
  std::atomic<bool> passed{false};
  CacheRig::Options options = four();
  options.poller = true;
  options.cache.observer = [&](const CacheEvent& event) {
    if (event.kind != CacheEvent::Kind::evicted) return;
    if (!ends) return evicted.push_back(event.extent);
    if (event.extent == evicted[1]) {
      reached = true;
      await(called);
    }
    if (event.extent == evicted[3]) passed = true;
  };
  const Source source(kStretches * kStretch);
  CacheRig rig(std::move(options));
  const auto load = [&](const Extent& extent) {
    EXPECT_TRUE(rig.cache->access(extent).wait().has_value());
  };
  for (std::uint64_t i = 0; i < 4; ++i) load(source.at(i * kStretch, 512));
  rig.cache->clear();  // in the order of the shards
  ASSERT_EQ(evicted.size(), 4u);
  load(evicted[1]);
  load(evicted[3]);
  rig.fake->hold(true);
  Cache& cache = *rig.cache;
  cache.access(evicted[2]).on_ready([&] {
    await(reached);
    // Called in a later poll of the same thread, so after the end of this copy.
    cache.access(evicted[0]).on_ready([&] {
      called = true;
      await(passed);
      std::this_thread::sleep_for(std::chrono::milliseconds{20});  // a hasty end goes on
    });
  });
  ends = true;
  rig.fake->hold(false);
  rig.cache.reset();
  EXPECT_TRUE(passed);
}

TEST_F(ShardsTest, MovedFromPlan_IsOfNoCache) {
  CacheRig other(four());
  const Extent extent = source_.at(0, 512);
  rig_.load(extent);
  Prefetch plan = other.cache->prefetch({&extent, 1});
  Prefetch moved(std::move(plan));
  expect_hit(extent, {.plan = &plan});
  plan = std::move(moved);
  expect_hit(extent, {.plan = &moved});
  EXPECT_FALSE(rig_.cache->access(extent, {.plan = &plan}).hit());
  other.settle();
}

TEST_F(ShardsTest, PlanOfAnotherCache_IsInvalid) {
  CacheRig other(four());
  const Extent extent = source_.at(0, 512);
  const Prefetch plan = other.cache->prefetch({&extent, 1});
  rig_.load(extent);
  std::vector<Block> blocks(1);
  rig_.cache->access({&extent, 1}, blocks, {.plan = &plan});
  blocks.push_back(rig_.cache->access(extent, {.plan = &plan}));
  blocks.push_back(rig_.cache->access(source_.at(512, 3 * kStretch), {.plan = &plan}));
  for (const Block& block : blocks) {
    const auto bytes = block.wait();
    ASSERT_FALSE(bytes.has_value());
    EXPECT_EQ(bytes.error().code, ErrorCode::invalid);
    EXPECT_NE(bytes.error().message.find("plan of another cache"), std::string::npos);
    EXPECT_EQ(block.wait_on_gpu().error().code, ErrorCode::invalid);
    EXPECT_EQ(block.clone().wait().error().code, ErrorCode::invalid);
    EXPECT_TRUE(source_.holds(block.now()->data()));
  }
  EXPECT_EQ(plan.progress().used, 0u);
  EXPECT_TRUE(rig_.cache->access(extent, {}).hit());
  other.settle();
}

TEST(ShardsReserveTest, TooLargeBudget_ChangesNothing) {
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max() / 2;
  CacheRig rig(four({.reserve = true}));
  const Source source(kStretches * kStretch);
  rig.load(source.at(0, 4096));
  const Status grown = rig.cache->resize(kDram, Bytes{huge});
  ASSERT_FALSE(grown.has_value());
  EXPECT_EQ(grown.error().code, ErrorCode::exhausted);
  for (std::uint64_t i = 0; i < kStretches; ++i) rig.load(source.at(i * kStretch, kStretch));
  EXPECT_GT(rig.cache->stats().bytes_used, 3_MiB + 768_KiB);
}

TEST(ShardsOptionsTest, WrongNumber_IsRefused) {
  for (const std::size_t shards : {3u, 512u, 256u}) {
    CacheRig rig;
    CacheOptions options{.budgets = {{kDram, 512_KiB}}, .shards = shards};
    const auto made = Cache::create(*rig.mover, options);
    ASSERT_FALSE(made.has_value()) << shards;
    EXPECT_EQ(made.error().code, ErrorCode::invalid);
    EXPECT_NE(made.error().message.find(std::to_string(shards) + " shards"), std::string::npos);
  }
}

TEST(ShardsOptionsTest, AutomaticNumber_FollowsCpusAndBudget) {
  CacheOptions options{.budgets = {{kDram, 2048_GiB}}};
  EXPECT_EQ(CacheShards::automatic(options, 0), 1u);
  EXPECT_EQ(CacheShards::automatic(options, 2), 1u);
  EXPECT_EQ(CacheShards::automatic(options, 16), 8u);
  EXPECT_EQ(CacheShards::automatic(options, 384), 64u);
  options.budgets.emplace_back(kHbm, 1100_MiB);
  EXPECT_EQ(CacheShards::automatic(options, 384), 4u);
  options.budgets.emplace_back(NodeId{7}, 100_MiB);
  EXPECT_EQ(CacheShards::automatic(options, 384), 1u);
  options.budgets = {{kDram, 2048_GiB}};
  options.observer = [](const CacheEvent&) {};
  EXPECT_EQ(CacheShards::automatic(options, 384), 1u);
}

// Memory from aligned_alloc(), counted.
struct OwnMemory {
  explicit OwnMemory(std::size_t bytes, std::size_t shift = 0)
      : begin(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 8191) / 4096 * 4096))),
        range({begin + shift, bytes}, kDram) {
    ++living;
  }
  ~OwnMemory() {
    std::free(begin);
    --living;
  }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  std::byte* const begin;
  MemoryRange range;
  static inline std::atomic<int> living{0};
};

using Slab = Result<std::shared_ptr<const Object>>;

Slab own_slab(Bytes bytes, std::size_t shift = 0) {
  auto memory = std::make_shared<OwnMemory>(bytes.value, shift);
  const Object* const object = &memory->range;
  return std::shared_ptr<const Object>(std::move(memory), object);
}

TEST(CacheAllocate, OwnMemory_HoldsTheCopiesUntilTheCacheReleasesIt) {
  Source source(100000);
  std::vector<std::pair<NodeId, Bytes>> asked;
  {
    const auto allocate = [&](NodeId node, Bytes bytes) {
      asked.emplace_back(node, bytes);
      return own_slab(bytes);
    };
    CacheRig rig({.cache = {.slab = 64_KiB, .allocate = allocate}, .budget = 128_KiB});
    EXPECT_EQ(OwnMemory::living, 0);
    rig.load(source.at(0, 50000));
    const Block block = rig.cache->access(source.at(0, 50000));
    const auto bytes = block.wait();
    ASSERT_TRUE(bytes.has_value());
    EXPECT_FALSE(source.holds(bytes->data()));
    EXPECT_TRUE(source.equals(source.at(0, 50000), *bytes));
    EXPECT_EQ(OwnMemory::living, 1);
    rig.load(source.at(50000, 50000));
    EXPECT_EQ(asked, (std::vector<std::pair<NodeId, Bytes>>{{kDram, 64_KiB}, {kDram, 64_KiB}}));
  }
  EXPECT_EQ(OwnMemory::living, 0);
}

TEST(CacheAllocate, ErrorsAndWrongMemory_LeaveTheSource) {
  Source source(10000);
  const std::pair<std::function<Slab(Bytes)>, ErrorCode> bad[] = {
      {[](Bytes) { return Slab(Unexpected(Error{ErrorCode::denied, "not today"})); },
       ErrorCode::denied},
      {[](Bytes bytes) { return own_slab(bytes - 1_B); }, ErrorCode::invalid},
      {[](Bytes bytes) { return own_slab(bytes, 64); }, ErrorCode::invalid},
      {[](Bytes) { return Slab(nullptr); }, ErrorCode::invalid},
      {[](Bytes) -> Slab { throw std::bad_alloc(); }, ErrorCode::exhausted}};
  for (const auto& [answer, code] : bad) {
    const auto allocate = [&answer](NodeId, Bytes bytes) { return answer(bytes); };
    CacheRig rig({.cache = {.allocate = allocate}});
    const Block block = rig.cache->access(source.at(0, 100));
    EXPECT_EQ(block.state(), BlockState::absent);
    EXPECT_EQ(block.node(), kHbm);
    const auto reserved = Cache::create(
        *rig.mover, {.budgets = {{kDram, 1_MiB}}, .reserve = true, .allocate = allocate});
    ASSERT_FALSE(reserved.has_value());
    EXPECT_EQ(reserved.error().code, code) << reserved.error().message;
  }
  EXPECT_EQ(OwnMemory::living, 0);
}

}  // namespace
}  // namespace headrace
