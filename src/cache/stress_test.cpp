// SPDX-License-Identifier: Apache-2.0
// Many threads at once, with copies that end in a thread of their own: for ThreadSanitizer, and for
// the order between a writer's invalidate() and the reads of others.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>

#include "core/mutex.h"
#include "headrace/random.h"
#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kSlot = 512;
constexpr std::size_t kSlots = 24;

std::uint64_t version_of(std::span<const std::byte> bytes, bool& torn) {
  std::uint64_t first = 0;
  std::memcpy(&first, bytes.data(), sizeof first);
  for (std::size_t i = 0; i < bytes.size(); i += sizeof first) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    torn = torn || word != first;
  }
  return first;
}

FakeOptions unreliable() {
  FakeOptions fake;
  fake.own_thread = true;
  fake.inside_chance = 0.1;
  fake.fail_chance = 0.02;
  fake.partial_chance = 0.1;
  fake.reorder = true;
  fake.log = false;
  return fake;
}

// With several shards some blocks lie in two stretches.
void read_and_invalidate(std::size_t shards) {
  const std::size_t slots = kSlots * shards;
  Source source(kSlot * slots);
  CacheRig rig({.fake = unreliable(),
                .cache = {.slab = 4096_B, .shards = shards},
                .budget = Bytes{8192 * shards},
                .observe = false});
  std::atomic<std::uint64_t> accesses{0};
  Mutex exchange_mutex;
  std::vector<Block> exchanged(4);
  const auto reader = [&](std::uint64_t seed) {
    Random random(seed);
    std::vector<Block> held(3);
    for (int i = 0; i < 1500; ++i) {
      const std::uint64_t length = shards > 1 && random.chance(0.1) ? 3 : 1;
      const std::uint64_t slot = random.below(slots - length + 1);
      const Extent extent = source.at(slot * kSlot, length * kSlot);
      Block& block = held[random.below(held.size())];
      block = rig.cache->access(extent);
      ++accesses;
      if (random.chance(0.2)) {
        const MutexLock lock(exchange_mutex);
        std::swap(exchanged[random.below(exchanged.size())], block);  // let go by another thread
        block = rig.cache->access(extent);
        ++accesses;
      }
      if (random.chance(0.5)) {
        const auto bytes = block.wait();
        ASSERT_TRUE(bytes && source.equals(extent, *bytes));
      }
      if (random.chance(0.1)) held[0] = held[1].clone();
      if (random.chance(0.05)) rig.cache->invalidate(extent);
      if (random.chance(0.01)) rig.cache->flush();
      if (random.chance(0.003)) rig.cache->clear();
      if (random.chance(0.01)) {
        ASSERT_TRUE(
            rig.cache->resize(kDram, Bytes{(4096 + random.below(8192)) * shards}).has_value());
      }
    }
  };
  const auto planner = [&](std::uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 100; ++i) {
      std::vector<Extent> plan;
      for (int k = 0; k < 10; ++k) plan.push_back(source.at(random.below(slots) * kSlot, kSlot));
      Prefetch prefetch = rig.cache->prefetch(plan, {.window = 2048_B});
      for (const Extent& extent : plan) {
        const Block block = rig.cache->access(extent);
        ++accesses;
        if (random.chance(0.3)) {
          ASSERT_TRUE(block.wait().has_value());
        }
      }
      (void)prefetch.progress();
      if (random.chance(0.5)) prefetch.cancel();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < 3; ++i) threads.emplace_back(reader, i + 1);
    for (std::uint64_t i = 0; i < 2; ++i) threads.emplace_back(planner, i + 10);
  }
  exchanged.clear();
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.hits + stats.inflight_hits + stats.misses, accesses.load());
  EXPECT_EQ(stats.bytes_pinned, 0_B);
}

TEST(CacheStressTest, ReadersAndInvalidationsOnTinyBudgets) { read_and_invalidate(1); }

TEST(CacheStressTest, ReadersAndInvalidationsInShards) { read_and_invalidate(4); }

// The whole budget is one slab that the first miss allocates: those that miss meanwhile wait for
// it.
TEST(CacheStressTest, NobodyIsRefusedWhileASlabIsOnItsWay) {
  constexpr std::size_t kThreads = 8;
  for (int round = 0; round < 5; ++round) {
    FakeOptions fake;
    fake.own_thread = true;
    fake.log = false;
    Source source(kSlot * 4 * kThreads);
    CacheRig rig({.fake = fake, .cache = {.slab = 32_MiB}, .budget = 32_MiB, .observe = false});
    std::barrier ready(kThreads);
    std::vector<Prefetch> plans(kThreads);
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        ready.arrive_and_wait();
        const Extent mine = source.at((kThreads + i) * kSlot, kSlot);
        if (i % 2 == 1) plans[i] = rig.cache->prefetch(std::vector{source.at(i * kSlot, kSlot)});
        const Block block = rig.cache->access(mine);
        const auto bytes = block.wait();
        ASSERT_TRUE(bytes && source.equals(mine, *bytes) && !source.holds(bytes->data()));
      });
    }
    threads.clear();
    for (std::size_t i = 0; i < kThreads; ++i) EXPECT_EQ(plans[i].progress().started, i % 2);
    EXPECT_EQ(rig.cache->stats().refusals, 0u);
  }
}

// Four frames, one of them held: three threads with a block each find one for the next.
TEST(CacheStressTest, NobodyIsRefusedWhileAFrameIsFree) {
  FakeOptions fake;
  fake.own_thread = true;
  fake.log = false;
  Source source(8 * kSlot);
  CacheRig rig(
      {.fake = fake, .cache = {.slab = 4096_B}, .budget = Bytes{4 * kSlot}, .observe = false});
  const Block held = rig.cache->access(source.at(0, kSlot));
  ASSERT_TRUE(held.wait().has_value());
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const Extent extent = source.at(i % 8 * kSlot, kSlot);
        const Block block = rig.cache->access(extent);
        const auto bytes = block.wait();
        ASSERT_TRUE(bytes && source.equals(extent, *bytes));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

// Rows are cached, then written (while nothing copies them), then invalidated, then announced to
// the readers: whoever knows of a row must see what was written, in every word.
TEST(CacheStressTest, NoReaderSeesAVersionOlderThanTheLastInvalidate) {
  FakeOptions fake;
  fake.own_thread = true;
  fake.log = false;
  constexpr std::uint64_t kRows = 200;
  Source rows(kSlot * kRows);
  CacheRig rig({.fake = fake, .cache = {.slab = 4096_B}, .budget = 8192_B, .observe = false});
  std::memset(rows.bytes().data(), 0, kSlot * kRows);
  std::atomic<std::uint64_t> written{0};
  std::jthread writer([&] {
    for (std::uint64_t row = 0; row < kRows; ++row) {
      // Somebody has cached the row before it is written: those bytes are old afterwards.
      (void)rig.cache->access(rows.at(row * kSlot, kSlot)).wait();
      for (std::uint64_t i = 0; i < kSlot; i += 8) {
        const std::uint64_t version = row + 1;
        std::memcpy(rows.bytes().data() + row * kSlot + i, &version, 8);
      }
      rig.cache->invalidate(rows.at(row * kSlot, kSlot));
      written = row + 1;
    }
  });
  std::vector<std::jthread> readers;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    readers.emplace_back([&, seed] {
      Random random(seed);
      while (written.load() < kRows) {
        const std::uint64_t known = written.load();
        if (known == 0) continue;
        const std::uint64_t row = known - 1 - random.below(std::min<std::uint64_t>(known, 4));
        const Block block = rig.cache->access(rows.at(row * kSlot, kSlot));
        const auto bytes = block.wait();
        ASSERT_TRUE(bytes.has_value());
        bool torn = false;
        ASSERT_EQ(version_of(*bytes, torn), row + 1);
        ASSERT_FALSE(torn);
      }
    });
  }
}

}  // namespace
}  // namespace headrace
