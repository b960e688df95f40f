// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/traffic/kernels_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "measure/instruments/traffic/kernels_traffic.h"

namespace headrace::instruments {
namespace {

TEST(RandomPlace, EachOfAllOnce) {
  for (std::size_t size = 1; size <= 1 << 14; size *= 2) {
    std::set<std::size_t> seen;
    for (std::size_t i = 0; i < size; ++i) seen.insert(place_of(i, size - 1));
    EXPECT_EQ(seen.size(), size);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
}

// No stride that a prefetcher could follow, and no channels in turn, which the lowest bits of a
// line's number select.
TEST(RandomPlace, IsNoStride) {
  constexpr std::size_t kMask = (1 << 20) - 1;
  std::set<std::size_t> steps;
  std::set<std::size_t> channels;
  constexpr std::size_t kLooked = 1024;
  for (std::size_t i = 0; i < kLooked; ++i) {
    const std::size_t here = place_of(i, kMask);
    const std::size_t next = place_of(i + 1, kMask);
    steps.insert((next - here) & kMask);
    channels.insert(here % 8 << 3 | next % 8);
  }
  EXPECT_GT(steps.size(), kLooked / 2);
  EXPECT_EQ(channels.size(), 64U) << "any channel after any other";
}

TEST(RandomLoop, EveryWidthWritesItsPartAndNothingElse) {
  constexpr std::size_t kHalf = 1 << 17;
  std::vector<std::byte> memory(2 * kHalf + 4096);
  void* at = memory.data();
  std::size_t space = memory.size();
  auto* const aligned = static_cast<std::byte*>(std::align(4096, 2 * kHalf, at, space));
  for (const unsigned bits : vector_widths()) {
    for (const bool around : {false, true}) {
      for (const std::size_t block : {64U, 256U, 4096U}) {
        std::fill_n(aligned, 2 * kHalf, std::byte{0});
        random_loop(around, bits)({.from = aligned,
                                   .to = aligned + kHalf,
                                   .from_mask = kHalf / block - 1,
                                   .to_mask = kHalf / block - 1,
                                   .block = block,
                                   .reads = 1,
                                   .writes = 1,
                                   .first = 0,
                                   .count = kHalf / block});
        EXPECT_EQ(std::count(aligned, aligned + kHalf, std::byte{0}), kHalf) << bits;
        EXPECT_EQ(std::count(aligned + kHalf, aligned + 2 * kHalf, std::byte{0x5a}), kHalf) << bits;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::instruments
