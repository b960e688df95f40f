#include "cache/entry.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace {
namespace {

TEST(EntryPoolTest, WhatIsTakenIsNewAndStaysWhereItIs) {
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
  EXPECT_EQ(again.used + again.by_prefetch + again.detached, 0);
}

}  // namespace
}  // namespace headrace
