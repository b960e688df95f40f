// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/layer/kernels_multiply.h"

#include <gtest/gtest.h>

namespace headrace::instruments {
namespace {

TEST(MultiplyTest, DoesWhatIsAskedAndLittleMore) {
  EXPECT_EQ(multiply(0), 0u);
  for (const std::uint64_t asked : {1u, 1000u, 1'000'000u}) {
    const std::uint64_t done = multiply(asked);
    EXPECT_GE(done, asked);
    EXPECT_LT(done, asked + 2 * 8 * 16);  // one turn of eight sums in vectors of 16
  }
}

}  // namespace
}  // namespace headrace::instruments
