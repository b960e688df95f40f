// SPDX-License-Identifier: Apache-2.0
#include "core/intrusive_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>

#include "headrace/random.h"

namespace headrace {
namespace {

struct Item {
  Item* next = nullptr;
  Item* previous = nullptr;
  Item* next_of_all = nullptr;
  Item* previous_of_all = nullptr;
  bool in = false;
};
using List = IntrusiveList<Item, &Item::next, &Item::previous>;
using All = IntrusiveList<Item, &Item::next_of_all, &Item::previous_of_all>;

// Traverses in both directions and compares.
std::deque<Item*> items(const List& list) {
  std::deque<Item*> forwards;
  std::deque<Item*> backwards;
  for (Item* item = list.front(); item != nullptr; item = List::next(*item)) {
    forwards.push_back(item);
  }
  for (Item* item = list.back(); item != nullptr; item = List::previous(*item)) {
    backwards.push_front(item);
  }
  EXPECT_EQ(forwards, backwards);
  return forwards;
}

TEST(IntrusiveList, RandomOperations_MatchADeque) {
  Random random(1);
  std::array<Item, 20> all;
  List list;
  std::deque<Item*> model;
  for (int step = 0; step < 20'000; ++step) {
    Item& item = all[random.below(all.size())];
    if (item.in) {
      list.remove(item);
      std::erase(model, &item);
    } else if (random.chance(0.5)) {
      list.push_front(item);
      model.push_front(&item);
    } else {
      list.push_back(item);
      model.push_back(&item);
    }
    item.in = !item.in;
    ASSERT_EQ(list.empty(), model.empty());
    ASSERT_EQ(items(list), model);
  }
}

TEST(IntrusiveList, ListsByOtherFields_AreIndependent) {
  std::array<Item, 3> some;
  List list;
  All all;
  for (Item& item : some) {
    list.push_back(item);
    all.push_front(item);
  }
  list.remove(some[1]);
  EXPECT_EQ(items(list), (std::deque<Item*>{&some[0], &some[2]}));
  EXPECT_EQ(all.front(), &some[2]);
  EXPECT_EQ(All::next(*all.front()), &some[1]);
  list.push_back(some[1]);
  EXPECT_EQ(list.back(), &some[1]);
}

}  // namespace
}  // namespace headrace
