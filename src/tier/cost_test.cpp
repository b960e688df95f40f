// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "headrace/tier/hotness.h"

namespace headrace {
namespace {

TEST(HotnessCost, IsMeasuredOfEachSourceThatIsThere) {
  for (const HotnessKind kind : kHotnessKinds) {
    const auto cost = measure_hotness_cost(kind, 1_MiB);
    const auto there = open_hotness(kind);
    ASSERT_EQ(cost.has_value(), there.has_value());
    if (!cost) continue;
    EXPECT_EQ(cost->pages, 256u);
    EXPECT_GT(cost->look_ns_per_page, 0);
    EXPECT_GT(cost->access_ns, 0);
    EXPECT_GT(cost->first_access_ns, 0);
  }
}

TEST(HotnessCost, IsThatOfSomeWholePages) {
  EXPECT_EQ(measure_hotness_cost(HotnessKind::written, {0}).error().code, ErrorCode::invalid);
  EXPECT_EQ(measure_hotness_cost(HotnessKind::written, {5000}).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
