// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/popularity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace headrace::kv_bench {
namespace {

// The share of accesses to the `part` of pages used most.
double taken(std::vector<PageGroup> groups, double part) {
  std::ranges::sort(groups, std::greater{},
                    [](const PageGroup& each) { return each.share / each.pages; });
  double pages = 0, found = 0;
  for (const PageGroup& each : groups) pages += each.pages;
  double left = part * pages;
  for (const PageGroup& each : groups) {
    const double now = std::min(left, each.pages);
    found += each.share * now / each.pages;
    left -= now;
  }
  return found;
}

TEST(Popularity, IsThatOfThePagesThatTheHashMakes) {
  constexpr std::uint64_t kRecords = 20'000;
  constexpr double kPerPage = 4;
  // The pages themselves: a hundred times as many ranks as records by their hash, and later ranks
  // evenly.
  const ScrambledKeys keys(kRecords);
  const ZipfRanks ranks(kYcsbItems);
  constexpr std::uint64_t kRanks = 100 * kRecords;
  std::vector<PageGroup> pages(kRecords / 4, {1, (1 - ranks.below(kRanks)) * 4 / kRecords});
  double before = 0;
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    const double below = ranks.below(rank + 1);
    pages[keys.record_of(rank) / 4].share += below - before;
    before = below;
  }
  const auto groups = page_groups(*find_workload("C"), kRecords, kPerPage);
  for (const double part : {0.01, 0.1, 0.25, 0.5, 0.8}) {
    EXPECT_NEAR(taken(groups, part), taken(pages, part), 0.01) << part;
  }
}

TEST(Popularity, OfTheLatestIsTheLawOfAges) {
  const auto groups = page_groups(*find_workload("D"), 1'000'000, 4);
  const ZipfRanks ages(1'000'000);
  for (const double part : {0.01, 0.1, 0.5}) {
    EXPECT_NEAR(taken(groups, part), ages.below(static_cast<std::uint64_t>(part * 1e6)), 0.001);
  }
  EXPECT_EQ(groups.front().age, 0);
}

TEST(Popularity, ATerabyteIsAThousandGroups) {
  for (const char* name : {"A", "D"}) {
    const auto groups = page_groups(*find_workload(name), 1'000'000'000, 4);
    double pages = 0, share = 0;
    for (const PageGroup& each : groups) {
      ASSERT_GT(each.pages, 0);
      ASSERT_GE(each.share, 0);
      ASSERT_LE(each.pages, 250e6 / 250);
      pages += each.pages;
      share += each.share;
    }
    EXPECT_NEAR(pages / 250e6, 1, 1e-6);
    EXPECT_NEAR(share, 1, 1e-9);
    EXPECT_LT(groups.size(), 4000U);
  }
}

}  // namespace
}  // namespace headrace::kv_bench
