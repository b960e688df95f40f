// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/copy_stream.h"

#include <gtest/gtest.h>

namespace headrace::cuda {
namespace {

TEST(Coalesce, NeighboursOnBothSidesAreOneCopy_ReachedWhereAllAre) {
  const std::vector<StreamCopy> copies = {
      {.to = 1000, .from = 50, .bytes = 10, .reached = true},
      {.to = 1010, .from = 60, .bytes = 5, .reached = true},
      {.to = 1015, .from = 66, .bytes = 4, .reached = true},  // a gap at its source
      {.to = 1020, .from = 70, .bytes = 1, .reached = true},  // a gap at its destination
      {.to = 1021, .from = 71, .bytes = 2},
      {.to = 10, .from = 20, .bytes = 3},
      {.to = 13, .from = 23, .bytes = 1, .reached = true}};
  std::vector<std::size_t> part_of;
  EXPECT_EQ(coalesce(copies, part_of),
            (std::vector<StreamCopy>{
                {1000, 50, 15, true}, {1015, 66, 4, true}, {1020, 70, 3}, {10, 20, 4}}));
  EXPECT_EQ(part_of, (std::vector<std::size_t>{0, 0, 1, 2, 2, 3, 3}));
}

}  // namespace
}  // namespace headrace::cuda
