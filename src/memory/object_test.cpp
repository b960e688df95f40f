// SPDX-License-Identifier: Apache-2.0
#include "headrace/object.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

namespace headrace {
namespace {

TEST(Object, MemoryRange_DescribesMemoryWithoutOwningIt) {
  std::array<std::byte, 100> bytes{};
  const MemoryRange range(bytes, NodeId{3});
  EXPECT_EQ(range.size(), 100_B);
  EXPECT_EQ(range.node(), NodeId{3});
  EXPECT_EQ(range.memory(), bytes.data());
}

TEST(Object, ManyThreads_GetDistinctIds) {
  constexpr std::size_t kThreads = 4, kEach = 1000;
  std::array<std::byte, 1> byte{};
  std::vector<std::vector<ObjectId>> ids(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& own : ids) {
      threads.emplace_back([&] {
        for (std::size_t i = 0; i < kEach; ++i) {
          own.push_back(MemoryRange(byte, NodeId{0}).id());
        }
      });
    }
  }
  std::vector<ObjectId> all;
  for (const auto& own : ids) {
    EXPECT_TRUE(std::ranges::is_sorted(own));
    all.insert(all.end(), own.begin(), own.end());
  }
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
  EXPECT_EQ(all.size(), kThreads * kEach);
}

TEST(Extent, IsValidOnlyInsideItsObject) {
  std::array<std::byte, 100> bytes{};
  const MemoryRange range(bytes, NodeId{0});
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_TRUE((Extent{&range, 0, 100_B}).valid());
  EXPECT_TRUE((Extent{&range, 100, 0_B}).valid());
  EXPECT_TRUE((Extent{&range, 99, 1_B}).valid());
  EXPECT_FALSE((Extent{&range, 99, 2_B}).valid());
  EXPECT_FALSE((Extent{&range, 101, 0_B}).valid());
  EXPECT_FALSE((Extent{&range, 1, Bytes{kMax}}).valid()) << "offset + length wraps to 0";
  EXPECT_FALSE((Extent{&range, kMax, 1_B}).valid());
  EXPECT_FALSE((Extent{nullptr, 0, 0_B}).valid());
}

TEST(Extent, PartsAndWholes) {
  std::array<std::byte, 100> bytes{};
  const MemoryRange range(bytes, NodeId{0});
  const Extent all = whole(range);
  EXPECT_EQ(all, (Extent{&range, 0, 100_B}));
  const Extent part = all.part(10, 20_B).part(5, 6_B);
  EXPECT_EQ(part, (Extent{&range, 15, 6_B}));
  EXPECT_EQ(part.memory(), bytes.data() + 15);
  EXPECT_EQ(part.end(), 21U);
}

}  // namespace
}  // namespace headrace
