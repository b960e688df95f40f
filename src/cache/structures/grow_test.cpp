// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/grow.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(GrowForOne, CalledPerElement_ReallocatesLogarithmically) {
  std::vector<int> all;
  std::size_t grown = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::size_t before = all.capacity();
    grow_for_one(all);
    ASSERT_GT(all.capacity(), all.size());
    grown += all.capacity() != before ? 1 : 0;
    all.push_back(i);
  }
  EXPECT_LE(grown, 17U);
}

}  // namespace
}  // namespace headrace
