// SPDX-License-Identifier: Apache-2.0
#include "model/side_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace headrace {
namespace {

TEST(SideCacheTest, Scans_HitBetweenContiguousAndScatteredMemory) {
  for (const auto& [ratio, contiguous] :
       {std::pair{0.25, 1.0}, {1.0, 1.0}, {1.5, 1.0 / 3}, {2.0, 0.0}, {4.0, 0.0}}) {
    const Estimate hits = *side_cache_hits(SideCachePattern::scan, ratio);
    EXPECT_DOUBLE_EQ(hits.low, std::min(contiguous, std::exp(-ratio))) << ratio;
    EXPECT_DOUBLE_EQ(hits.high, std::max(contiguous, std::exp(-ratio))) << ratio;
    EXPECT_DOUBLE_EQ(hits.value, (hits.low + hits.high) / 2) << ratio;
  }
}

// A scan of a direct-mapped cache, line by line, is what the formula counts.
TEST(SideCacheTest, ContiguousScan_HitsAsASimulatedCache) {
  constexpr unsigned kCache = 1000;
  for (const unsigned lines : {500u, 1000u, 1200u, 1700u, 2500u}) {
    std::vector<unsigned> held(kCache, ~0u);
    unsigned hits = 0;
    for (int cycle = 0; cycle < 3; ++cycle) {
      hits = 0;
      for (unsigned line = 0; line < lines; ++line) {
        unsigned& slot = held[line % kCache];
        hits += slot == line ? 1 : 0;
        slot = line;
      }
    }
    const Estimate found = *side_cache_hits(SideCachePattern::scan, lines / double{kCache});
    const double measured = hits / static_cast<double>(lines);
    const double nearest =
        std::min(std::abs(measured - found.low), std::abs(measured - found.high));
    EXPECT_NEAR(nearest, 0, 1e-9) << lines;
  }
}

TEST(SideCacheTest, RandomAccesses_HitByTheCachesShare) {
  EXPECT_DOUBLE_EQ(side_cache_hits(SideCachePattern::random, 0.5)->value, 1);
  EXPECT_DOUBLE_EQ(side_cache_hits(SideCachePattern::random, 4)->value, 0.25);
}

TEST(SideCacheTest, RatioThatIsNotAboveZero_IsInvalid) {
  for (const double ratio : {0.0, -1.0, std::nan("")}) {
    const auto hits = side_cache_hits(SideCachePattern::scan, ratio);
    ASSERT_FALSE(hits.has_value());
    EXPECT_EQ(hits.error().code, ErrorCode::invalid);
  }
}

TEST(SideCacheTest, TrafficOfHitsAndMisses) {
  const SideCacheTraffic hit = side_cache_reads(1, 1);
  EXPECT_EQ(hit.cache_reads, 1);
  EXPECT_EQ(hit.cache_writes + hit.memory_reads + hit.memory_writes, 0);
  const SideCacheTraffic miss = side_cache_reads(0, 0.5);
  EXPECT_EQ(miss.cache_reads, 1);
  EXPECT_EQ(miss.cache_writes, 1);
  EXPECT_EQ(miss.memory_reads, 1);
  EXPECT_EQ(miss.memory_writes, 0.5);
  const SideCacheTraffic write = side_cache_writes(0, 0.5);
  EXPECT_EQ(write.cache_reads, 0.5);
  EXPECT_EQ(write.cache_writes, 1);
  EXPECT_EQ(write.memory_reads, 0);
  EXPECT_EQ(write.memory_writes, 0.5);
}

}  // namespace
}  // namespace headrace
