// SPDX-License-Identifier: Apache-2.0
// Lookups and misses; and two blocking scenarios of an earlier cache
// (docs/design/cache.md).
#include "headrace/cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/support/cache_rig.h"
#include "tests/support/manual_waiting.h"

namespace headrace {
namespace {

using namespace test;

TEST(CacheAccessTest, HitsInFlightAndReadyShareOneCopy) {
  Source source(10000);
  CacheRig rig;
  const Extent extent = source.at(0, 10000);
  const Block first = rig.cache->access(extent);
  const Block second = rig.cache->access(extent);
  rig.settle();
  const Block third = rig.cache->access(extent);
  EXPECT_EQ(third.state(), BlockState::ready);
  EXPECT_EQ(first.now()->data(), second.now()->data());
  EXPECT_EQ(first.now()->data(), third.now()->data());
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.inflight_hits, 1u);
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.bytes_pinned, 10000_B);  // once
  EXPECT_EQ(rig.fake->stats().bytes, 10000_B);
  Block moved = rig.cache->access(extent);
  EXPECT_FALSE(first.hit()) << "ready since";
  EXPECT_FALSE(second.hit()) << "another's copy was in flight";
  EXPECT_TRUE(third.hit());
  EXPECT_TRUE(moved.clone().hit());
  EXPECT_TRUE(Block(std::move(moved)).hit());
  EXPECT_FALSE(Block().hit());
}

TEST(CacheAccessTest, PartOfACachedExtent_IsReadFromItsBlock) {
  Source source(100000);
  CacheRig rig;
  rig.load(source.at(1000, 50000));
  const Block part = rig.cache->access(source.at(20000, 123));
  EXPECT_EQ(part.state(), BlockState::ready);
  EXPECT_TRUE(source.equals(part.extent(), *part.now()));
  EXPECT_EQ(rig.cache->stats().hits, 1u);
  // An extent that only overlaps a block gets a copy of its own.
  const Block other = rig.cache->access(source.at(50000, 10000));
  EXPECT_EQ(other.state(), BlockState::filling);
  EXPECT_EQ(rig.cache->stats().blocks, 2u);
  EXPECT_TRUE(source.equals(other.extent(), *other.wait()));
}

TEST(CacheAccessTest, ABatchIsServedLikeSingleAccesses) {
  Source source(100000);
  CacheRig rig;
  rig.load(source.at(0, 4096));
  const std::vector<Extent> extents{source.at(0, 4096),    source.at(8192, 4096),
                                    source.at(8192, 4096), source.at(99999, 2),
                                    source.at(0, 0),       Extent{}};
  std::vector<Block> blocks(extents.size());
  blocks[0] = rig.cache->access(source.at(50000, 10));
  rig.cache->access(extents, blocks);
  rig.settle();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(source.equals(extents[i], *blocks[i].wait())) << i;
  }
  EXPECT_EQ(blocks[3].wait().error().code, ErrorCode::invalid);
  EXPECT_EQ(blocks[4].state(), BlockState::ready);
  EXPECT_EQ(blocks[5].state(), BlockState::absent);
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 3u);
  EXPECT_EQ(stats.inflight_hits, 1u);
}

// Fürst's thesis, 5.1.2: T2 and T3 get the block after it entered the cache and before T1 submitted
// the copy. Only T1 can wait for the copy. Here T2 and T3 wait for the state of the block, and T1
// never waits.
TEST(ThesisTest, BlockingScenario_T2AndT3DoNotDependOnAWaitOfT1) {
  std::atomic<int> stage{0};
  CacheRig::Options options;
  options.poller = true;
  options.cache.route = [&](const Machine& machine, const RouteRequest& request) {
    stage = 1;  // T1 is inside the submission
    for (int i = 0; stage.load() < 3 && i < 5'000'000; ++i) std::this_thread::yield();
    return place::one(machine, request);
  };
  Source source(4096);
  CacheRig rig(std::move(options));
  rig.record = false;
  const Extent extent = source.at(0, 4096);
  const auto other = [&] {
    while (stage.load() == 0) std::this_thread::yield();
    const Block block = rig.cache->access(extent);
    EXPECT_EQ(block.state(), BlockState::filling);
    EXPECT_EQ(block.wait(Nanoseconds{0}).error().code, ErrorCode::timed_out);
    ++stage;
    const auto bytes = block.wait();
    EXPECT_TRUE(bytes && source.equals(extent, *bytes));
  };
  std::jthread t2(other);
  std::jthread t3(other);
  const Block t1 = rig.cache->access(extent);
  t2.join();
  t3.join();
  EXPECT_EQ(rig.cache->stats().misses, 1u);
  EXPECT_EQ(rig.cache->stats().inflight_hits, 2u);
}

// The first deadlock: a wake-up did not change the awaited value, so the thread went back to sleep.
// Here the word changes before any thread is woken, also for a failed copy.
TEST(ThesisTest, FirstDeadlock_WaitingThreadsWakeAfterSuccessAndFailure) {
  for (const bool broken : {false, true}) {
    Source source(4096);
    CacheRig rig({.poller = true});
    rig.record = false;
    if (broken) {
      rig.fake->break_engine(kCpuA, Error{ErrorCode::io, "broken"});
      rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken"});
    }
    rig.fake->hold(true);
    const Block block = rig.cache->access(source.at(0, 4096));
    std::atomic<int> waiting{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const Block own = rig.cache->access(source.at(0, 4096));
        ++waiting;
        const auto bytes = own.wait();
        EXPECT_TRUE(bytes && source.equals(own.extent(), *bytes));
      });
    }
    while (waiting.load() < 4) std::this_thread::yield();
    rig.fake->hold(false);
    threads.clear();
    EXPECT_EQ(block.state(), broken ? BlockState::failed : BlockState::ready);
  }
}

// The index cell is full of held blocks, so only its holder reaches the new block.
TEST(CacheAccessTest, BlockBesideAFullIndexCell_LivesWhileItIsHeld) {
  Source source(65536);
  CacheRig rig({.budget = 2_MiB, .observe = false});
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 64; ++i) held.push_back(rig.cache->access(source.at(i, 4096)));
  rig.settle();
  std::jthread([&] {
    const Extent one_more = source.at(64, 4096);
    const Block block = rig.cache->access(one_more);
    rig.settle();
    for (std::uint64_t i = 2; i < 14; ++i) rig.load(source.at(i * 4096, 4096));
    EXPECT_EQ(block.state(), BlockState::evicting);
    EXPECT_TRUE(source.equals(one_more, *block.now()));
    EXPECT_FALSE(source.holds(block.now()->data()));
  }).join();
  held.clear();
  rig.cache->clear();
  EXPECT_EQ(rig.cache->stats().bytes_used, 0_B);
}

// Extents a byte apart: each has the right bytes, and a lookup does not examine all of them.
TEST(CacheAccessTest, ManyOverlappingExtents_HaveTheRightBytes) {
  Source source(16384);
  CacheRig rig({.budget = 16_MiB});
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 300; ++i) {
    held.push_back(rig.cache->access(source.at(i, 4096)));
    rig.settle();
  }
  for (std::uint64_t i = 0; i < 300; ++i) {
    EXPECT_TRUE(source.equals(source.at(i, 4096), *held[i].wait())) << i;
  }
  EXPECT_LE(rig.cache->stats().blocks, 64u);
  held.clear();
  for (std::uint64_t i = 0; i < 300; ++i) rig.load(source.at(i, 4096));
  EXPECT_LE(rig.cache->stats().blocks, 64u);
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
  EXPECT_EQ(rig.cache->access(source.at(299, 4096)).state(), BlockState::ready) << "the newest";
  rig.cache->invalidate(source.at(0, 16384));
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
}

TEST(CacheAccessTest, AccessWithoutSpace_WaitsForARelease) {
  Source source(8 * 4096);
  ManualClock clock;
  ManualWaiting waiting(clock);
  CacheRig rig({.budget = Bytes{2 * 4096}, .clock = &clock, .waiting = &waiting, .observe = false});
  std::optional<Block> first = rig.cache->access(source.at(0, 4096));
  const Block second = rig.cache->access(source.at(4096, 4096));
  rig.settle();
  const Extent wanted = source.at(2 * 4096, 4096);
  const AccessOptions patient{.space_timeout = std::chrono::seconds{10}};
  int sleeps = 0;
  waiting.asleep = [&] {
    if (++sleeps == 3) first.reset();
  };
  {
    const Block third = rig.cache->access(wanted, patient);
    rig.settle();
    EXPECT_EQ(third.state(), BlockState::ready);
    EXPECT_LT(clock.now(), std::chrono::seconds{5});
    EXPECT_EQ(rig.cache->stats().refusals, 0u);

    const Nanoseconds before = clock.now();
    const Block refused = rig.cache->access(source.at(3 * 4096, 4096), patient);
    EXPECT_EQ(refused.state(), BlockState::absent);
    EXPECT_GE(clock.now() - before, std::chrono::seconds{10}) << "no block was released";
  }
  const Nanoseconds before = clock.now();
  const Block large = rig.cache->access(source.at(0, 3 * 4096), patient);
  EXPECT_EQ(large.state(), BlockState::absent);
  EXPECT_EQ(clock.now(), before) << "it never fits";
}

TEST(CacheAccessTest, Stop_EndsTheWaitForSpace) {
  Source source(4 * 4096);
  ManualClock clock;
  ManualWaiting waiting(clock);
  CacheRig rig({.budget = 4096_B, .clock = &clock, .waiting = &waiting, .observe = false});
  const Block held = rig.cache->access(source.at(0, 4096));
  rig.settle();
  int asked = 0;
  const std::function<bool()> stop = [&] { return ++asked == 3; };
  const AccessOptions patient{.space_timeout = std::chrono::hours{24}, .stop = &stop};
  EXPECT_EQ(rig.cache->access(source.at(4096, 4096), patient).state(), BlockState::absent);
  EXPECT_EQ(asked, 3);
  EXPECT_LT(clock.now(), std::chrono::hours{1});
  EXPECT_EQ(rig.cache->stats().refusals, 1u);
  EXPECT_EQ(rig.cache->access(source.at(0, 4096), patient).state(), BlockState::ready);
  EXPECT_EQ(asked, 3) << "there was nothing to wait for";
}

// The released block is found at once, for any number of pins.
TEST(CacheAccessTest, BlockReleasedAmongManyPins_IsFound) {
  constexpr std::uint64_t kMany = 2000;
  Source source((kMany + 2) * 4096);
  CacheRig rig({.budget = Bytes{kMany * 4096}, .observe = false});
  std::vector<Block> held;
  constexpr std::uint64_t kEach = 125;  // nearly as many as a thread can pin in slots
  for (std::uint64_t first = 0; first < kMany; first += kEach) {
    std::jthread([&] {
      for (std::uint64_t i = first; i < first + kEach; ++i) {
        held.push_back(rig.cache->access(source.at(i * 4096, 4096)));
        rig.settle();
      }
    }).join();
  }
  for (const std::uint64_t gone : {kMany / 2, kMany - 1, std::uint64_t{3}}) {
    EXPECT_EQ(rig.cache->access(source.at(kMany * 4096, 4096)).state(), BlockState::absent);
    held[gone] = {};
    held[gone] = rig.cache->access(source.at((kMany + 1) * 4096, 4096));
    EXPECT_EQ(held[gone].state(), BlockState::filling) << gone;
    rig.settle();
    held[gone] = {};
    held[gone] = rig.cache->access(source.at(gone * 4096, 4096));
    rig.settle();
    EXPECT_EQ(held[gone].state(), BlockState::ready) << gone;
  }
}

TEST(CacheAccessTest, MissesOfOneCall_AreSubmittedTogether) {
  Source source(64 * 4096);
  CacheRig rig({.fake = {.max_in_flight = 100}, .observe = false});
  rig.load(source.at(3 * 4096, 4096));
  const std::uint64_t before = rig.fake->stats().submits;
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 17; ++i) extents.push_back(source.at(i * 4096, 4096));
  std::vector<Block> blocks(extents.size());
  rig.cache->access(extents, blocks);
  EXPECT_EQ(rig.fake->stats().submits, before + 1);
  rig.settle();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(source.equals(extents[i], *blocks[i].wait()));
    EXPECT_EQ(blocks[i].hit(), i == 3);
  }
}

// A callback during the submission of blocks may need the slab that its thread is to allocate.
TEST(CacheAccessTest, CallbackThatNeedsTheSlabOfItsThread_GetsIt) {
  constexpr std::uint64_t kHalf = 32768;
  Source source(8 * kHalf);
  CacheRig* made = nullptr;
  Block inner;
  const RoutePolicy route = [&](const Machine& machine, const RouteRequest& request) {
    if (made != nullptr) {
      CacheRig& rig = *std::exchange(made, nullptr);
      inner = rig.cache->access(source.at(3 * kHalf, kHalf - 4096));
    }
    return place::one(machine, request);
  };
  CacheRig rig({.cache = {.route = route, .slab = 64_KiB}, .budget = Bytes{4 * kHalf}});
  const Block held = rig.cache->access(source.at(0, kHalf - 4096));
  made = &rig;
  const std::array extents{source.at(kHalf, kHalf - 4096), source.at(2 * kHalf, kHalf - 4096)};
  std::array<Block, 2> blocks;
  rig.cache->access(extents, blocks);
  for (const Block* block : {&blocks[0], &blocks[1], &inner}) {
    EXPECT_EQ(block->state(), BlockState::filling);
  }
  rig.settle();
  inner = {};
}

// An access that waits for space must not hold copies that it has not submitted.
TEST(CacheAccessTest, MissesBeforeOneWithoutSpace_AreSubmittedBeforeTheWait) {
  Source source(64 * 4096);
  CacheRig rig({.budget = 16384_B, .observe = false});
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 5; ++i) extents.push_back(source.at(i * 4096, 4096));
  std::vector<Block> blocks(extents.size());
  std::size_t accepted = 0;
  const std::function<bool()> stop = [&] {
    accepted = rig.fake->stats().accepted;
    return true;
  };
  rig.cache->access(extents, blocks, {.space_timeout = std::chrono::seconds{60}, .stop = &stop});
  EXPECT_EQ(accepted, 4u);
  EXPECT_EQ(blocks[4].state(), BlockState::absent);
  rig.settle();
}

}  // namespace
}  // namespace headrace
