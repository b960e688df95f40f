#include "cache/structures/index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <list>
#include <set>

namespace headrace {
namespace {

struct Item {
  Range bytes;
  Relaxed<Item*> next_in_cell = nullptr;
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

Range any_range() {
  // Few objects and offsets, and lengths of all classes, so that much covers and overlaps.
  const auto length = *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(1, 20),
                                      rc::gen::inRange<std::uint64_t>(1, 3000));
  return {ObjectId{*rc::gen::inRange<std::uint64_t>(1, 3)},
          *rc::gen::inRange<std::uint64_t>(0, 2000), length};
}

RC_GTEST_PROP(RangeIndexTest, FindsWhatANaiveListFinds, ()) {
  Index index;
  std::list<Item> items;
  for (int step = *rc::gen::inRange(1, 120); step > 0; --step) {
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
    const auto found = index.overlapping(asked);
    RC_ASSERT(covering(index, asked) == covers);
    RC_ASSERT(std::set<Item*>(found.begin(), found.end()) == overlaps);
    RC_ASSERT(found.size() == overlaps.size());
    RC_ASSERT(index.size() == items.size());
    RC_ASSERT(index.all().size() == items.size());
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
  EXPECT_EQ(index.overlapping(huge.bytes).size(), 3u);
  EXPECT_EQ(index.overlapping({ObjectId{2}, 0, 5}).size(), 0u);
}

TEST(RangeIndexTest, AVisitStopsWhenTold) {
  Index index;
  std::list<Item> items(5, Item{.bytes = {ObjectId{1}, 0, 8}});
  for (Item& item : items) index.insert(item);
  int visits = 0;
  index.covering({ObjectId{1}, 2, 2}, [&](Item&) { return ++visits < 2; });
  EXPECT_EQ(visits, 2);
}

TEST(RangeIndexTest, ClassesOfLengths) {
  EXPECT_EQ(Index::class_of(1), 0u);
  EXPECT_EQ(Index::class_of(2), 1u);
  EXPECT_EQ(Index::class_of(3), 2u);
  EXPECT_EQ(Index::class_of(4), 2u);
  EXPECT_EQ(Index::class_of(5), 3u);
}

}  // namespace
}  // namespace headrace
