// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/decimal.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Decimal, TextHasExactlyTheScalesDigits) {
  EXPECT_EQ(decimal_text(0, 0), "0");
  EXPECT_EQ(decimal_text(0, 2), "0.00");
  EXPECT_EQ(decimal_text(7, 2), "0.07");
  EXPECT_EQ(decimal_text(-7, 2), "-0.07");
  EXPECT_EQ(decimal_text(-12345, 2), "-123.45");
  EXPECT_EQ(decimal_text(1200, 2), "12.00");
  EXPECT_EQ(decimal_text(42, 0), "42");
}

TEST(Decimal, TextHoldsWhatNoMachineWordDoes) {
  const Int128 large = static_cast<Int128>(1'000'000'000'000'000'000) * 1'000'000'000;
  EXPECT_EQ(decimal_text(large, 4), "100000000000000000000000.0000");
  const Int128 smallest = static_cast<Int128>(1) << 127;
  EXPECT_EQ(decimal_text(smallest, 0), "-170141183460469231731687303715884105728");
}

TEST(Decimal, AveragesRoundHalfAwayFromZero) {
  EXPECT_EQ(average_text(100, 2, 3, 6), "0.333333");
  EXPECT_EQ(average_text(200, 2, 3, 6), "0.666667");
  EXPECT_EQ(average_text(1, 0, 2, 0), "1");
  EXPECT_EQ(average_text(-1, 0, 2, 0), "-1");
  EXPECT_EQ(average_text(-1, 0, 3, 0), "0");
  EXPECT_EQ(average_text(5, 6, 2, 6), "0.000003");
}

TEST(Decimal, ConstantsKeepTheirComparisonAtAnyScale) {
  const Decimal five_hundredths{5, 2};
  EXPECT_EQ(five_hundredths.at_least(2), 5);
  EXPECT_EQ(five_hundredths.at_least(4), 500);
  EXPECT_EQ(five_hundredths.at_most(4), 500);
  // In tenths the next values are 0.1 above and 0.0 below.
  EXPECT_EQ(five_hundredths.at_least(1), 1);
  EXPECT_EQ(five_hundredths.at_most(1), 0);
  const Decimal negative{-5, 2};
  EXPECT_EQ(negative.at_least(1), 0);
  EXPECT_EQ(negative.at_most(1), -1);
}

}  // namespace
}  // namespace headrace
