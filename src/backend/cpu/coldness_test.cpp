// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/coldness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace headrace {
namespace {

TEST(Coldness, LooksInsideTheRangeAndLeavesItAsItWas) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{3} << 20}) {
    std::vector<std::byte> memory(bytes, std::byte{7});
    flush_from_caches(memory.data(), memory.size());
    for (int i = 0; i < 50; ++i) (void)looks_cold(memory.data(), memory.size());
    EXPECT_EQ(std::ranges::count(memory, std::byte{7}), static_cast<std::ptrdiff_t>(bytes));
  }
}

}  // namespace
}  // namespace headrace
