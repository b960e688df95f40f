// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/entry.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace {
namespace {

TEST(EntryPoolTest, TakenEntry_IsNewAndKeepsItsAddress) {
  EntryPool pool;
  std::set<CacheEntry*> taken;
  for (int i = 0; i < 1000; ++i) {
    CacheEntry& entry = pool.take();
    EXPECT_TRUE(taken.insert(&entry).second);
    EXPECT_EQ(entry.now(), BlockState::filling);
    entry.used = entry.by_prefetch = entry.detached = 1;
    entry.word.fetch_or(CacheEntry::kNoticed | CacheEntry::kCounted);
  }
  for (CacheEntry* entry : taken) {
    pool.give(*entry);
    EXPECT_EQ(entry->now(), BlockState::absent);
  }
  CacheEntry& again = pool.take();
  EXPECT_TRUE(taken.contains(&again));
  EXPECT_EQ(again.word.load(), static_cast<std::uint32_t>(BlockState::filling));
  EXPECT_EQ(again.used + again.by_prefetch, 0);
  EXPECT_EQ(again.detached, 1) << "in no index yet";
}

// A thread that found it without the lock may have set its slot while it was another block.
TEST(CacheEntryTest, Entry_IsOpenOnlyForItsRangeAndWhileReady) {
  CacheEntry entry;
  entry.id = ObjectId{7};
  entry.offset = 4096;
  entry.length = 4096;
  const Range held = entry.range();
  const Range part{ObjectId{7}, 4097, 10};
  EXPECT_FALSE(entry.is_open_for(held)) << "absent";
  entry.word = static_cast<std::uint32_t>(BlockState::ready);
  EXPECT_TRUE(entry.is_open_for(held));
  EXPECT_TRUE(entry.is_open_for(part));
  EXPECT_TRUE(entry.is_open_as(held));
  EXPECT_FALSE(entry.is_open_as(part));
  for (const Range& other : {Range{ObjectId{8}, 4096, 4096}, Range{ObjectId{7}, 0, 4096},
                             Range{ObjectId{7}, 8192, 4096}, Range{ObjectId{7}, 4096, 4097}}) {
    EXPECT_FALSE(entry.is_open_for(other)) << other.offset << "+" << other.length;
  }
  for (const std::uint32_t flag :
       {CacheEntry::kCounted, CacheEntry::kNoticed, CacheEntry::kAwaited}) {
    entry.word = static_cast<std::uint32_t>(BlockState::ready) | flag;
    EXPECT_FALSE(entry.is_open_for(held)) << flag;
    EXPECT_FALSE(entry.is_open_as(held)) << flag;
  }
}

TEST(CacheEntryTest, Claim_SucceedsOnlyIfAllPinsAreCounted) {
  constexpr auto kReady = static_cast<std::uint32_t>(BlockState::ready);
  CacheEntry entry;
  for (const bool on_gpu : {false, true}) {
    const std::uint32_t ready = kReady | (on_gpu ? CacheEntry::kOnGpu : 0);
    const std::uint32_t counted = ready | CacheEntry::kCounted;
    const std::uint32_t victim = counted | CacheEntry::kVictim;
    const std::uint32_t uncounted = counted | CacheEntry::kUncounted;
    for (const std::uint32_t word : {ready, counted, victim, uncounted}) {
      entry.word = word;
      EXPECT_EQ(entry.claim(), word == counted || word == victim) << word;
      EXPECT_EQ(entry.word.load(), word == ready ? ready : counted);
      entry.word = word;
      EXPECT_EQ(entry.reopen(), word == victim) << word;
      EXPECT_EQ(entry.word.load(), word == victim ? ready : word);
    }
    entry.word = victim | CacheEntry::kNoticed;
    EXPECT_FALSE(entry.reopen()) << "a plan wants to know";
  }
}

}  // namespace
}  // namespace headrace
