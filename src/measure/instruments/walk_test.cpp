// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/walk.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace::instruments {
namespace {

TEST(ColdArea, IsFourCachesOfWholePiecesForTheWalk) {
  for (const Bytes cache : {1_B, 2_MiB, 32_MiB, 105_MiB, 384_MiB}) {
    for (Bytes piece = 64_B; piece <= 1_GiB; piece = piece * 4) {
      const Bytes area = cold_area(cache, piece);
      EXPECT_GE(area, cache * 4);
      EXPECT_EQ(area.value % piece.value, 0u);
      EXPECT_EQ(ScatteredWalk(area.value / piece.value).slots() * piece.value, area.value);
    }
  }
}

TEST(ScatteredWalk, VisitsEverySlotOnceARound) {
  for (const std::size_t slots : {1UL, 2UL, 64UL, 1000UL}) {
    ScatteredWalk walk(slots);
    EXPECT_LE(walk.slots(), slots);
    EXPECT_GT(walk.slots() * 2, slots);
    for (int round = 0; round < 2; ++round) {
      std::set<std::size_t> seen;
      for (std::size_t i = 0; i < walk.slots(); ++i) seen.insert(walk.next());
      EXPECT_EQ(seen.size(), walk.slots());
      EXPECT_LT(*seen.rbegin(), slots);
    }
  }
}

}  // namespace
}  // namespace headrace::instruments
