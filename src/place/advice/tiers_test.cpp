// SPDX-License-Identifier: Apache-2.0
#include "place/advice/tiers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "place/advice/advice_testing.h"

namespace headrace {
namespace {

TEST(TiersTest, MostTrafficIsLessWhereOneHoldsLittle) {
  // The second tier holds a tenth of the data, so the first serves nine tenths of the traffic.
  const std::vector tiers = {tier_of(0, {{90, 1}}), tier_of(1, {{90, 1}}, 0.1)};
  EXPECT_NEAR(most_traffic(tiers), 100, 1e-6);
}

TEST(TiersTest, InvalidLoads_AreRefused) {
  const std::vector tiers = {tier_of(0, {{10, 1}})};
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(check_load(tiers, {.demand = bad}).error().code, ErrorCode::invalid);
    EXPECT_EQ(check_load(tiers, {.lines = bad}).error().code, ErrorCode::invalid);
  }
  EXPECT_EQ(check_load(tiers, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(check_load(tiers, {.demand = 1, .lines = 1}).error().code, ErrorCode::invalid);
  EXPECT_EQ(check_load({}, {.lines = 1}).error().code, ErrorCode::absent);
}

TEST(TiersTest, RefusesDataThatDoesNotFit) {
  const std::vector tiers = {tier_of(0, {{10, 1}}, 0.5), tier_of(1, {{10, 1}}, 0.4)};
  const auto status = check_load(tiers, {.lines = 1});
  EXPECT_EQ(status.error().code, ErrorCode::exhausted);
  EXPECT_EQ(status.error().message,
            "the memories hold 90 % of the data; take a smaller data set or more memory");
}

}  // namespace
}  // namespace headrace
