// SPDX-License-Identifier: Apache-2.0
// Hits that take no lock, and what must hold all the same.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cache/structures/readers.h"
#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kPiece = 4096;

CacheRig::Options unobserved(Bytes budget) {
  FakeOptions fake;
  fake.inside_chance = 1;
  return {.fake = fake, .cache = {.slab = budget}, .budget = budget, .observe = false};
}

// An order that calls the test under the lock.
class AskedOrder final : public EvictionOrder {
 public:
  AskedOrder(std::function<void()> asked, bool marks) : asked_(std::move(asked)), marks_(marks) {}
  void insert(EvictionLinks& entry, const EvictionBlock& block) override {
    order_->insert(entry, block);
  }
  void remove(EvictionLinks& entry) override { order_->remove(entry); }
  void touch(EvictionLinks& entry) override {
    if (!marks_) asked_();
    order_->touch(entry);
  }
  bool marks() const override { return marks_; }
  EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                        unsigned effort) override {
    if (marks_) asked_();
    return order_->choose(accept, effort);
  }

 private:
  const std::unique_ptr<EvictionOrder> order_ = sieve();
  const std::function<void()> asked_;
  const bool marks_;
};

// Without the lock the slot could become another pin of its thread before the release is complete.
TEST(CacheHitsTest, BlockOfAnotherThread_IsReleasedUnderTheLock) {
  constexpr auto kLongEnough = std::chrono::milliseconds(100);
  Source source(16 * kPiece);
  std::atomic<bool> locked{false}, released{false}, too_early{false};
  auto options = unobserved(Bytes{2 * kPiece});
  options.cache.eviction = [&] {
    return std::make_unique<AskedOrder>(
        [&] {
          locked = true;
          const auto end = std::chrono::steady_clock::now() + kLongEnough;
          while (!released && std::chrono::steady_clock::now() < end) std::this_thread::yield();
          if (released) too_early = true;
        },
        true);
  };
  CacheRig rig(std::move(options));
  rig.load(source.at(0, kPiece));
  rig.load(source.at(kPiece, kPiece));
  (void)rig.cache->access(source.at(0, kPiece));
  std::jthread other([&, held = rig.cache->access(source.at(0, kPiece))]() mutable {
    while (!locked) std::this_thread::yield();
    held = Block{};
    released = true;
  });
  rig.load(source.at(2 * kPiece, kPiece));
  other.join();
  EXPECT_TRUE(locked);
  EXPECT_FALSE(too_early);
}

// Keeps the lock until `done`, at most 20 s. False: that was too short.
bool keep_lock(std::atomic<bool>& locked, const std::atomic<bool>& done) {
  locked = true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return done;
}

TEST(CacheHitsTest, HitAndRelease_NeedNoLock) {
  Source source(16 * kPiece);
  std::atomic<bool> locked{false}, done{false}, in_time{false};
  auto options = unobserved(Bytes{2 * kPiece});
  options.cache.eviction = [&] {
    return std::make_unique<AskedOrder>([&] { in_time = keep_lock(locked, done); }, true);
  };
  CacheRig rig(std::move(options));
  rig.load(source.at(0, kPiece));
  rig.load(source.at(kPiece, kPiece));
  (void)rig.cache->access(source.at(0, kPiece));
  std::jthread other([&] { rig.load(source.at(2 * kPiece, kPiece)); });
  while (!locked) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    const Block block = rig.cache->access(source.at(0, kPiece));
    EXPECT_EQ(block.state(), BlockState::ready);
    EXPECT_TRUE(source.equals(block.extent(), *block.now()));
  }
  std::vector<Block> both(2);
  rig.cache->access(std::vector{source.at(0, kPiece), source.at(0, 100)}, both);
  EXPECT_EQ(both[1].state(), BlockState::ready);
  both.clear();
  done = true;
  other.join();
  EXPECT_TRUE(in_time) << "the hits waited for the lock";
  EXPECT_GE(rig.cache->stats().hits, 100u);
}

// Seven of the blocks are victims then.
TEST(CacheHitsTest, HitOnAVictim_NeedsNoLockAndKeepsTheBlock) {
  constexpr std::uint64_t kBlocks = 128;
  Source source(2 * kBlocks * kPiece);
  std::atomic<int> asked{0};
  std::atomic<bool> locked{false}, done{false}, in_time{false};
  auto options = unobserved(Bytes{kBlocks * kPiece});
  options.cache.eviction = [&] {
    return std::make_unique<AskedOrder>(
        [&] {
          if (asked++ == 1) in_time = keep_lock(locked, done);
        },
        true);
  };
  CacheRig rig(std::move(options));
  for (std::uint64_t i = 0; i < kBlocks; ++i) rig.load(source.at(i * kPiece, kPiece));
  rig.load(source.at(kBlocks * kPiece, kPiece));  // chooses eight, and drops one
  ASSERT_EQ(asked, 1);
  ASSERT_EQ(rig.cache->stats().evictions, 1u);
  // The victims are too small for this block, so the order is asked for more.
  std::jthread other([&] { rig.load(source.at((kBlocks + 2) * kPiece, 2 * kPiece)); });
  while (!locked) std::this_thread::yield();
  std::vector<Block> held;
  for (std::uint64_t i = 1; i < 5; ++i) {
    held.push_back(rig.cache->access(source.at(i * kPiece, kPiece)));
  }
  done = true;
  other.join();
  EXPECT_TRUE(in_time) << "the hits waited for the lock";
  for (const Block& block : held) {
    EXPECT_TRUE(block.hit());
    EXPECT_EQ(block.state(), BlockState::ready);
    EXPECT_TRUE(source.equals(block.extent(), *block.now()));
  }
}

// Victims are chosen sixteen at a time, and more while some are left.
TEST(CacheHitsTest, BlocksInSlotsAmongMany_AreNotEvicted) {
  constexpr std::uint64_t kBlocks = 256;
  Source source(4 * kBlocks * kPiece);
  CacheRig rig(unobserved(Bytes{kBlocks * kPiece}));
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    Block block = rig.cache->access(source.at(i * kPiece, kPiece));
    rig.settle();
    if (i % 17 == 3) held.push_back(std::move(block));
  }
  for (std::uint64_t i = kBlocks; i < 4 * kBlocks; ++i) rig.load(source.at(i * kPiece, kPiece));
  for (const Block& block : held) {
    EXPECT_EQ(block.state(), BlockState::ready);
    EXPECT_TRUE(source.equals(block.extent(), *block.now()));
  }
  EXPECT_EQ(rig.cache->stats().evictions, 3 * kBlocks);
}

// The first pin of a block is in a slot too, while the block is in flight.
TEST(CacheHitsTest, InvalidatedBlockInFlightInASlot_KeepsItsBytes) {
  Source source(16 * kPiece);
  CacheRig rig({.budget = Bytes{4 * kPiece}, .observe = false});
  rig.fake->hold(true);
  const Block stale = rig.cache->access(source.at(0, kPiece));
  EXPECT_EQ(rig.cache->stats().bytes_pinned, Bytes{kPiece});
  rig.cache->invalidate(source.at(0, 1));
  std::optional<Block> dropped = rig.cache->access(source.at(kPiece, kPiece));
  rig.cache->invalidate(source.at(kPiece, 1));
  dropped.reset();
  rig.fake->hold(false);
  rig.settle();
  EXPECT_EQ(stale.state(), BlockState::evicting);
  EXPECT_TRUE(source.equals(stale.extent(), *stale.now()));
  EXPECT_EQ(rig.cache->stats().bytes_used, Bytes{kPiece}) << "the held block";
  for (std::uint64_t i = 2; i < 16; ++i) rig.load(source.at(i * kPiece, kPiece));
  EXPECT_TRUE(source.equals(stale.extent(), *stale.now()));
  for (const EngineId engine : {kCpuA, kCpuB}) {
    rig.fake->break_engine(engine, Error{ErrorCode::io, "broken"});
  }
  std::optional<Block> failed = rig.cache->access(source.at(0, kPiece));
  std::optional<Block> other = rig.cache->access(source.at(kPiece, kPiece));
  rig.settle();
  EXPECT_EQ(failed->state(), BlockState::failed);
  for (const EngineId engine : {kCpuA, kCpuB}) rig.fake->break_engine(engine, std::nullopt);
  other.reset();
  for (std::uint64_t i = 2; i < 16; ++i) rig.load(source.at(i * kPiece, kPiece));
  EXPECT_EQ(failed->state(), BlockState::failed) << "its entry was not used for another";
  EXPECT_TRUE(source.equals(failed->extent(), *failed->wait())) << "the source";
}

TEST(CacheHitsTest, MorePinsThanSlots_CountOnceEach) {
  Source source(2 * kPiece);
  CacheRig rig(unobserved(Bytes{4 * kPiece}));
  rig.load(source.at(0, kPiece));
  std::vector<Block> held;
  for (int i = 0; i < 40; ++i) held.push_back(rig.cache->access(source.at(0, kPiece)));
  held.push_back(held.front().clone());
  EXPECT_EQ(rig.cache->stats().bytes_pinned, Bytes{kPiece});
  EXPECT_EQ(rig.cache->stats().hits, 40u);
  rig.cache->flush();
  EXPECT_EQ(rig.cache->stats().blocks, 1u);
  while (!held.empty()) held.erase(held.begin());
  EXPECT_EQ(rig.cache->stats().bytes_pinned, 0_B);
  rig.cache->flush();
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
}

TEST(CacheHitsTest, PinOfAnEndedThread_IsReleasedByAnother) {
  Source source(8 * kPiece);
  CacheRig rig(unobserved(Bytes{2 * kPiece}));
  rig.load(source.at(0, kPiece));
  Block block;
  std::jthread([&] {
    for (int i = 0; i < 3; ++i) block = rig.cache->access(source.at(0, kPiece));
  }).join();
  for (std::uint64_t i = 1; i < 8; ++i) rig.load(source.at(i * kPiece, kPiece));
  EXPECT_TRUE(source.equals(block.extent(), *block.now()));
  std::jthread([&, taken = std::move(block)]() mutable { taken = {}; }).join();
  EXPECT_EQ(rig.cache->stats().bytes_pinned, 0_B);
  rig.cache->flush();
  EXPECT_EQ(rig.cache->stats().blocks, 0u);
}

TEST(CacheHitsTest, OrderThatDoesMoreThanMark_LearnsOfEachHit) {
  Source source(2 * kPiece);
  int touched = 0;
  auto options = unobserved(Bytes{2 * kPiece});
  options.cache.eviction = [&] { return std::make_unique<AskedOrder>([&] { ++touched; }, false); };
  CacheRig rig(std::move(options));
  rig.load(source.at(0, kPiece));
  for (int i = 0; i < 5; ++i) (void)rig.cache->access(source.at(0, kPiece));
  EXPECT_EQ(touched, 5);
}

TEST(CacheHitsTest, AfterARefusal_NoSearchBeforeARelease) {
  Source source(8 * kPiece);
  int searches = 0;
  auto options = unobserved(Bytes{4 * kPiece});
  options.cache.eviction = [&] { return std::make_unique<AskedOrder>([&] { ++searches; }, true); };
  CacheRig rig(std::move(options));
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 4; ++i)
    held.push_back(rig.cache->access(source.at(i * kPiece, kPiece)));
  EXPECT_EQ(rig.cache->access(source.at(4 * kPiece, kPiece)).state(), BlockState::absent);
  const int first = searches;
  for (std::uint64_t i = 4; i < 8; ++i) {
    EXPECT_EQ(rig.cache->access(source.at(i * kPiece, kPiece)).state(), BlockState::absent);
  }
  EXPECT_EQ(searches, first);
  EXPECT_EQ(rig.cache->stats().refusals, 5u);
  // Another length may find space although the first was refused.
  EXPECT_EQ(rig.cache->access(source.at(4 * kPiece, 64)).state(), BlockState::absent);
  EXPECT_GT(searches, first);
  for (const std::size_t i : {2U, 0U}) {
    held[i] = Block{};
    EXPECT_EQ(rig.cache->access(source.at((4 + i) * kPiece, kPiece)).state(), BlockState::ready);
  }
}

TEST(CacheHitsTest, OldRefusal_IsNoReasonToRefuseWhenAPlanLacksSpace) {
  Source source(8 * kPiece);
  CacheRig rig(unobserved(Bytes{4 * kPiece}));
  const auto access = [&](std::uint64_t i) {
    return rig.cache->access(source.at(i * kPiece, kPiece));
  };
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 4; ++i) held.push_back(access(i));
  EXPECT_EQ(access(4).state(), BlockState::absent);
  held.pop_back();
  const std::vector items{source.at(5 * kPiece, kPiece), source.at(7 * kPiece, kPiece)};
  const Prefetch plan = rig.cache->prefetch(items);
  EXPECT_EQ(plan.progress().started, 1u) << "there is space for one";
  EXPECT_EQ(access(4).state(), BlockState::ready) << "in the place of what is planned";
}

TEST(CacheHitsTest, HitsWithoutTheLock_StartNoPlannedCopies) {
  constexpr std::uint64_t kItems = 64;
  Source source(4 * kItems * kPiece);
  CacheRig rig({.budget = Bytes{4 * kItems * kPiece}, .observe = false});
  const Extent hot = source.at(0, kPiece);
  rig.load(hot);
  std::vector<Extent> items;
  // Not neighbours, which would be fetched together.
  for (std::uint64_t i = 1; i <= kItems; ++i) items.push_back(source.at(2 * i * kPiece, kPiece));
  const Prefetch plan = rig.cache->prefetch(items);
  const auto started = [&] { return rig.cache->stats().prefetched; };
  EXPECT_EQ(started(), kItems) << "prefetch() starts all of them";
  rig.settle();
  // All items must be fetched again.
  rig.cache->invalidate(source.at(2 * kPiece, 3 * kItems * kPiece));
  const std::uint64_t after = started();
  EXPECT_EQ(after, kItems + 16) << "invalidate() starts few";
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rig.cache->access(hot).state(), BlockState::ready);
  EXPECT_EQ(started(), after) << "a hit starts none";
  {
    const Block miss = rig.cache->access(source.at(kPiece, kPiece));
  }
  EXPECT_EQ(started(), after + 16) << "a miss starts few";
  rig.settle();
  EXPECT_EQ(plan.progress().started, kItems) << "the ends of copies start the rest";
}

// No copy is in flight whose end could start more.
TEST(CacheHitsTest, PlanOfCopiesThatEndAtOnce_ContinuesOnProgress) {
  constexpr std::uint64_t kItems = 64;
  Source source(4 * kItems * kPiece);
  CacheRig rig(unobserved(Bytes{4 * kItems * kPiece}));
  std::vector<Extent> items;
  for (std::uint64_t i = 1; i <= kItems; ++i) items.push_back(source.at(2 * i * kPiece, kPiece));
  const Prefetch plan = rig.cache->prefetch(items);
  rig.cache->invalidate(source.at(0, 4 * kItems * kPiece));
  for (std::uint64_t more = 2; more <= 4; ++more) {
    EXPECT_EQ(plan.progress().started, 16 * more);
  }
  EXPECT_EQ(plan.progress().started, kItems);
}

TEST(CacheHitsTest, ThreadOfManyCaches_HitsInEach) {
  Source source(kPiece);
  std::vector<std::unique_ptr<CacheRig>> rigs;
  for (int i = 0; i < 5; ++i) {
    rigs.push_back(std::make_unique<CacheRig>(unobserved(Bytes{2 * kPiece})));
  }
  for (int round = 0; round < 3; ++round) {
    for (const auto& rig : rigs) rig->load(source.at(0, kPiece));
    rigs.pop_back();
    rigs.insert(rigs.begin(), std::make_unique<CacheRig>(unobserved(Bytes{2 * kPiece})));
  }
  rigs.back()->load(source.at(0, kPiece));
  EXPECT_EQ(rigs.back()->cache->stats().misses, 1u);
}

TEST(CacheHitsDeathTest, ABlockThatOutlivesItsCache_IsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr std::size_t kLast = Reader::kSlots;  // one more than there are slots
  const auto outlive = [](std::size_t kept) {
    Source source(2 * kPiece);
    std::vector<Block> blocks(kLast + 1);
    CacheRig rig(unobserved(Bytes{2 * kPiece}));
    rig.load(source.at(kPiece, kPiece));
    for (Block& block : blocks) block = rig.cache->access(source.at(kPiece, kPiece));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i != kept) blocks[i] = Block{};
    }
    rig.cache.reset();
  };
  const std::string message = "a Block outlives its cache: .* at offset " + std::to_string(kPiece);
  EXPECT_DEATH(outlive(0), message) << "pinned by a slot";
  EXPECT_DEATH(outlive(kLast), message) << "pinned by a count";
}

}  // namespace
}  // namespace headrace
