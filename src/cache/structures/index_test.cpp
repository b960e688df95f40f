// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <vector>

namespace headrace {
namespace {

// Skips nothing.
constexpr auto kNone = [](const auto&) { return false; };

struct Item {
  Range bytes;
  ChainLink<Item> next_in_cell;
  Range range() const { return bytes; }
};

using Index = RangeIndex<Item>;

std::set<Item*> covering(const Index& index, const Range& range) {
  std::set<Item*> found;
  index.covering(range, [&](Item& item) {
    EXPECT_TRUE(found.insert(&item).second) << "visited twice";
    return true;
  });
  return found;
}

std::vector<Item*> overlapping(const Index& index, const Range& range) {
  std::vector<Item*> found;
  index.visit_overlapping(range, [&](Item& item) {
    found.push_back(&item);
    return true;
  });
  return found;
}

Range any_range() {
  // Few objects and offsets, and lengths of all classes, so that many cover or overlap others.
  const auto length = *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(1, 20),
                                      rc::gen::inRange<std::uint64_t>(1, 3000));
  return {ObjectId{*rc::gen::inRange<std::uint64_t>(1, 3)},
          *rc::gen::inRange<std::uint64_t>(0, 2000), length};
}

RC_GTEST_PROP(RangeIndexTest, FindsWhatANaiveListFinds, ()) {
  Index index;
  std::list<Item> items;
  for (int step = *rc::gen::inRange(1, 250); step > 0; --step) {
    if (items.empty() || *rc::gen::inRange(0, 3) > 0) {
      items.push_back({.bytes = any_range()});
      index.insert(items.back());
    } else {
      auto gone =
          std::next(items.begin(), *rc::gen::inRange<int>(0, static_cast<int>(items.size())));
      index.remove(*gone);
      items.erase(gone);
    }
    const Range asked = any_range();
    std::set<Item*> covers;
    std::set<Item*> overlaps;
    for (Item& item : items) {
      if (item.bytes.contains(asked)) covers.insert(&item);
      if (item.bytes.overlaps(asked)) overlaps.insert(&item);
    }
    const auto found = overlapping(index, asked);
    RC_ASSERT(covering(index, asked) == covers);
    RC_ASSERT(std::set<Item*>(found.begin(), found.end()) == overlaps);
    RC_ASSERT(found.size() == overlaps.size());
    RC_ASSERT(index.size() == items.size());
  }
}

TEST(RangeIndexTest, EndsOfTheAddressSpaceAndOfAnObject) {
  Index index;
  Item first{.bytes = {ObjectId{1}, 0, 1}};
  Item huge{.bytes = {ObjectId{1}, 0, std::uint64_t{1} << 62}};
  Item last{.bytes = {ObjectId{1}, (std::uint64_t{1} << 62) - 1, 1}};
  for (Item* item : {&first, &huge, &last}) index.insert(*item);
  EXPECT_EQ(covering(index, first.bytes), (std::set<Item*>{&first, &huge}));
  EXPECT_EQ(covering(index, last.bytes), (std::set<Item*>{&last, &huge}));
  EXPECT_EQ(overlapping(index, huge.bytes).size(), 3u);
  EXPECT_EQ(overlapping(index, {ObjectId{2}, 0, 5}).size(), 0u);
}

TEST(RangeIndexTest, Visit_StopsWhenItReturnsFalse) {
  Index index;
  std::list<Item> items(5, Item{.bytes = {ObjectId{1}, 0, 8}});
  for (Item& item : items) index.insert(item);
  int visits = 0;
  index.covering({ObjectId{1}, 2, 2}, [&](Item&) { return ++visits < 2; });
  EXPECT_EQ(visits, 2);
}

// In parts, while other items come and go and the table grows and shrinks.
RC_GTEST_PROP(RangeIndexTest, Walk_FindsTheItemsThatStay, ()) {
  Index index;
  std::list<Item> items;
  // It grows at 160 items, and has moved all at 192.
  const auto last = *rc::gen::inRange<std::uint64_t>(150, 300);
  for (std::uint64_t i = 0; i < last; ++i) {
    items.push_back({.bytes = {ObjectId{1}, i * 10, 10}});
    index.insert(items.back());
  }
  const bool some = *rc::gen::arbitrary<bool>();
  const Range range{ObjectId{1}, some ? 500u : 0u, some ? 2000u : std::uint64_t{1} << 62};
  std::set<Item*> stay;
  std::vector<Item*> go;
  for (Item& item : items) {
    if (*rc::gen::inRange(0, 4) == 0) {
      if (item.bytes.overlaps(range)) stay.insert(&item);
    } else {
      go.push_back(&item);
    }
  }
  std::set<Item*> seen;
  for (Index::Cursor cursor; !cursor.ended;) {
    std::array<Item*, 16> found;
    const std::size_t count = index.next(range, cursor, found, kNone);
    for (Item* item : std::span(found).first(count)) seen.insert(item);
    for (int i = *rc::gen::inRange(0, 40); i > 0 && !go.empty(); --i) {
      index.remove(*go.back());
      go.pop_back();
    }
    if (*rc::gen::inRange(0, 8) == 0) {
      items.push_back({.bytes = {ObjectId{2}, items.size(), 1}});
      index.insert(items.back());
    }
  }
  RC_ASSERT(std::ranges::includes(seen, stay));
}

TEST(RangeIndexTest, GrowingIndex_FindsAllItems) {
  Index index;
  std::list<Item> items;
  while (!index.is_growing() || items.size() < 100) {
    items.push_back({.bytes = {ObjectId{1}, items.size() * 10, 10}});
    index.insert(items.back());
  }
  for (Item& item : items) EXPECT_TRUE(covering(index, item.bytes).contains(&item));
  index.move_some(1);
  EXPECT_TRUE(index.is_growing());
  index.move_some(1000);
  EXPECT_FALSE(index.is_growing());
  for (const Item& item : items) EXPECT_EQ(index.racing_equal(item.bytes), &item);
}

// For TSan: only the chain orders the writes of the item before its reads.
TEST(RangeIndexTest, ItemFoundWithoutTheLock_IsComplete) {
  const Range wanted{ObjectId{1}, 4096, 512};
  for (int round = 0; round < 20; ++round) {
    Index index;
    index.reserve(64);
    std::thread reader([&] {
      const Item* found = nullptr;
      while (found == nullptr) found = index.racing_equal(wanted);
      EXPECT_EQ(found->bytes, wanted);
    });
    const auto item = std::make_unique<Item>(Item{.bytes = wanted});
    index.insert(*item);
    reader.join();
  }
}

TEST(RangeIndexTest, Crowded_ReportsAFullCell) {
  Index index;
  std::list<Item> items;
  const Range asked{ObjectId{1}, 100, 2048};
  for (std::uint64_t i = 0; i < Index::kMostInCell; ++i) {
    EXPECT_EQ(index.crowded(asked), nullptr);
    items.push_back({.bytes = {ObjectId{1}, i, 2048}});
    index.insert(items.back());
  }
  EXPECT_NE(index.crowded(asked), nullptr);
  EXPECT_EQ(index.crowded({ObjectId{1}, 2048, 2048}), nullptr) << "the next cell";
  EXPECT_EQ(index.crowded({ObjectId{2}, 100, 2048}), nullptr);
  index.remove(items.back());
  EXPECT_EQ(index.crowded(asked), nullptr);
}

// Without the secret all of these fall into the first or the last cell. The index multiplies by
// 2^64 divided by the golden ratio, so multiples of a Fibonacci number come out close together.
// Before, next() ended the process at a chain longer than its output.
TEST(RangeIndexTest, OffsetsChosenForOneCell_Spread) {
  constexpr std::uint64_t kFibonacci = 14'930'352;  // the 36th; cells of class 0 are two bytes
  constexpr std::size_t kItems = 2500;
  Index index;
  std::list<Item> items;
  for (std::size_t i = 0; i < kItems; ++i) {
    items.push_back({.bytes = {ObjectId{1}, i * kFibonacci * 2, 1}});
    index.insert(items.back());
  }
  const Range everything{ObjectId{1}, 0, std::uint64_t{1} << 62};
  std::array<Item*, 256> found;
  std::size_t all = 0;
  for (Index::Cursor cursor; !cursor.ended;) all += index.next(everything, cursor, found, kNone);
  EXPECT_EQ(all, kItems);
}

TEST(RangeIndexTest, ReservedIndex_NeitherGrowsNorShrinks) {
  Index index;
  index.reserve(1000);
  const std::uint64_t cells = index.cells_of({ObjectId{1}, 0, std::uint64_t{1} << 62});
  std::list<Item> items;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    items.push_back({.bytes = {ObjectId{1}, i, 1}});
    index.insert(items.back());
  }
  for (Item& item : items) index.remove(item);
  items.push_back({.bytes = {ObjectId{1}, 0, 1}});
  index.insert(items.back());
  EXPECT_EQ(cells, 0u) << "no class is in use";
  EXPECT_EQ(index.cells_of({ObjectId{1}, 0, std::uint64_t{1} << 62}), 1024u);
}

}  // namespace
}  // namespace headrace
