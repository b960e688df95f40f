// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/promotion.h"

#include <gtest/gtest.h>

namespace headrace::kv_bench {
namespace {

double constant(double) { return 100'000; }

// A million pages in groups: a tenth with nine tenths of accesses, and the rest.
std::vector<PageGroup> hot_and_cold() {
  std::vector<PageGroup> groups(100, {1e3, 0.9 / 100});
  groups.resize(1000, {1e3, 0.1 / 900, 1e6});
  return groups;
}

PromotionOptions unlimited() {
  PromotionOptions options;
  options.policy.per_second = 1_GiB;
  return options;
}

TEST(Promotion, TheHotComeIn) {
  const Promoted promoted = promote(hot_and_cold(), unlimited(), constant);
  // Half of the hot pages were in slow memory, and only those are moved.
  EXPECT_NEAR(promoted.bytes, 0.5e5 * 4096, 0.01e5 * 4096);
  EXPECT_NEAR(promoted.slow_share, 0.1 * 5 / 9, 0.001);
}

TEST(Promotion, NoLookNoMove) {
  PromotionOptions options = unlimited();
  options.looks = 0;
  const Promoted promoted = promote(hot_and_cold(), options, constant);
  EXPECT_EQ(promoted.bytes, 0);
  EXPECT_NEAR(promoted.slow_share, 0.5, 1e-6);
}

TEST(Promotion, TheRateBoundsIt) {
  PromotionOptions options = unlimited();
  options.look_seconds = 1;
  options.looks = 10;
  options.policy.per_second = 16_MiB;
  const Promoted promoted = promote(hot_and_cold(), options, constant);
  EXPECT_GT(promoted.bytes, 0);
  EXPECT_LE(promoted.bytes, 10 * 16e6 * 1.05);
}

TEST(Promotion, RecordsYoungerThanALook_Stay) {
  PromotionOptions options = unlimited();
  options.insertions_per_operation = 0.05;  // 300 000 per look
  const Promoted promoted = promote(hot_and_cold(), options, constant);
  EXPECT_GT(promoted.slow_share, 0.45);
}

TEST(Promotion, FasterServersLearnFaster) {
  PromotionOptions options = unlimited();
  options.looks = 1;
  const auto groups = page_groups(*find_workload("C"), 10'000'000, 4);
  const auto slow = promote(groups, options, [](double) { return 10.0; });
  const auto fast = promote(groups, options, [](double) { return 1e5; });
  EXPECT_LT(fast.slow_share, slow.slow_share);
  EXPECT_LE(slow.slow_share, 0.5);
}

}  // namespace
}  // namespace headrace::kv_bench
