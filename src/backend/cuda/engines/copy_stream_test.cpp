// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/copy_stream.h"

#include <gtest/gtest.h>

namespace headrace::cuda {
namespace {

TEST(CopyStream, NeighboursOnBothSidesAreOneCopy) {
  const std::vector<StreamCopy> copies = {
      {.to = 1000, .from = 50, .bytes = 10}, {.to = 1010, .from = 60, .bytes = 5},
      {.to = 1015, .from = 66, .bytes = 4},  // a gap at its source
      {.to = 1020, .from = 70, .bytes = 1},  // a gap at its destination
      {.to = 1021, .from = 71, .bytes = 2},  {.to = 10, .from = 20, .bytes = 3}};
  std::vector<std::size_t> part_of;
  const auto made = coalesce(copies, part_of);
  EXPECT_EQ(made,
            (std::vector<StreamCopy>{{1000, 50, 15}, {1015, 66, 4}, {1020, 70, 3}, {10, 20, 3}}));
  EXPECT_EQ(part_of, (std::vector<std::size_t>{0, 0, 1, 2, 2, 3}));
  EXPECT_TRUE(coalesce({}, part_of).empty());
  EXPECT_TRUE(part_of.empty());
}

TEST(CopyStream, OneThatIsMadeOfSeveralIsReachedWhereAllAre) {
  std::vector<std::size_t> part_of;
  const auto reached = [&](bool first, bool second) {
    return coalesce(std::vector<StreamCopy>{{100, 50, 10, first}, {110, 60, 10, second}}, part_of)
        .at(0)
        .reached;
  };
  EXPECT_TRUE(reached(true, true));
  EXPECT_FALSE(reached(true, false));
  EXPECT_FALSE(reached(false, true));
}

}  // namespace
}  // namespace headrace::cuda
