// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/room.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Room, ForOneIsMadeAFewTimesAndNotForEach) {
  std::vector<int> all;
  std::size_t grown = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::size_t before = all.capacity();
    make_room_for_one(all);
    ASSERT_GT(all.capacity(), all.size());
    grown += all.capacity() != before ? 1 : 0;
    all.push_back(i);
  }
  EXPECT_LE(grown, 17U);
}

}  // namespace
}  // namespace headrace
