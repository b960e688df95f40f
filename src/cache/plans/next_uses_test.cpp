// SPDX-License-Identifier: Apache-2.0
#include "cache/plans/next_uses.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <vector>

namespace headrace {
namespace {

std::optional<Nanoseconds> in(std::int64_t microseconds) {
  return std::chrono::microseconds{microseconds};
}

TEST(NextUsesTest, Order_IsFurthestFirstAndNeverBeforeAll) {
  NextUses uses;
  std::deque<CacheEntry> entries(6);
  uses.insert(entries[0], in(10));
  uses.insert(entries[1], in(4000));
  uses.insert(entries[2], std::nullopt);
  uses.insert(entries[3], in(4000));
  uses.insert(entries[4], in(5'000'000'000));
  uses.insert(entries[5], std::nullopt);
  std::vector<const CacheEntry*> order;
  for (CacheEntry* at = uses.first(); at != nullptr; at = uses.after(*at)) order.push_back(at);
  const auto at = [&](std::size_t i) { return &entries[i]; };
  EXPECT_EQ(order, (std::vector<const CacheEntry*>{at(2), at(5), at(4), at(3), at(1), at(0)}));
  EXPECT_TRUE(NextUses::is_at(entries[1], in(4001)));
  EXPECT_FALSE(NextUses::is_at(entries[1], in(8000)));
  for (CacheEntry& entry : entries) uses.remove(entry);
  EXPECT_EQ(uses.first(), nullptr);
}

TEST(NextUsesTest, BlocksThatArePutAside_AreInNoBucketUntilTheyAreSorted) {
  NextUses uses;
  std::deque<CacheEntry> entries(3);
  uses.insert(entries[0], std::nullopt);
  uses.insert(entries[1], in(5'000'000'000));
  uses.insert(entries[2], in(10));
  for (std::size_t i = 0; i < 2; ++i) uses.put_aside(entries[i]);
  EXPECT_EQ(uses.first(), &entries[2]);
  EXPECT_EQ(uses.after(entries[2]), nullptr);
  EXPECT_TRUE(NextUses::is_aside(entries[0]) && NextUses::is_aside(entries[1]));
  EXPECT_FALSE(NextUses::is_aside(entries[2]));
  uses.sort_again();
  EXPECT_EQ(uses.next_old(), &entries[2]);
  uses.remove(entries[2]);
  EXPECT_EQ(uses.next_old(), &entries[1]);
  uses.remove(entries[1]);
  EXPECT_EQ(uses.next_old(), nullptr);
  uses.remove(entries[0]);
  EXPECT_EQ(uses.bytes(), 0u);
}

TEST(NextUsesTest, SortAgain_ReturnsEachBlockWithANextUseOnce) {
  NextUses uses;
  std::deque<CacheEntry> entries(6);
  uses.insert(entries[5], std::nullopt);
  for (std::size_t i = 0; i < 5; ++i) uses.insert(entries[i], in(100));
  for (const std::size_t expected : {5U, 0U}) {
    uses.sort_again();
    std::size_t sorted = 0;
    for (; CacheEntry* const old = uses.next_old(); ++sorted) {
      uses.remove(*old);
      uses.insert(*old, std::nullopt);
    }
    EXPECT_EQ(sorted, expected);
    EXPECT_EQ(uses.bytes(), 0u);
  }
  EXPECT_EQ(uses.first(), &entries[5]);
  EXPECT_EQ(uses.after(entries[5]), &entries[0]) << "they kept their order";
  for (CacheEntry& entry : entries) uses.remove(entry);
}

}  // namespace
}  // namespace headrace
