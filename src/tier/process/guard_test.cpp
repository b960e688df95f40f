// SPDX-License-Identifier: Apache-2.0
#include "tier/process/guard.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

TEST(ProcessGuard, SaysWhenFaultsTakeMoreOfTheProgramThanBefore) {
  Guard guard(0.05, seconds{1});
  EXPECT_FALSE(guard.worse(seconds{10}, 1000, microseconds{10}));
  EXPECT_FALSE(guard.worse(seconds{11}, 90000, microseconds{10}));
  EXPECT_FALSE(guard.before());
  EXPECT_FALSE(guard.worse(seconds{12}, 5000, microseconds{10})) << "all that was so far counts";
  guard.begin(0.5);
  EXPECT_DOUBLE_EQ(guard.before().value_or(0), 0.02);
  EXPECT_FALSE(guard.worse(seconds{12}, 5000, microseconds{10}));
  EXPECT_FALSE(guard.worse(seconds{12} + microseconds{1}, 90000, microseconds{10}))
      << "too short a span";
  EXPECT_FALSE(guard.worse(seconds{13}, 11900, microseconds{10})) << "0.069 is not 0.05 more";
  EXPECT_TRUE(guard.worse(seconds{14}, 19000, microseconds{10}));
  EXPECT_DOUBLE_EQ(guard.now(), 0.071);
  EXPECT_FALSE(guard.worse(seconds{15}, 19000, microseconds{10})) << "it is well again";
}

TEST(ProcessGuard, TakesThePastOfAProgramThatIsIdle) {
  Guard guard(0.05, seconds{1});
  EXPECT_FALSE(guard.worse(seconds{1}, 0, microseconds{10}));
  guard.begin(0.01);
  EXPECT_DOUBLE_EQ(guard.before().value_or(0), 0.01);
  EXPECT_FALSE(guard.worse(seconds{1}, 0, microseconds{10}));
  EXPECT_TRUE(guard.worse(seconds{2}, 7000, microseconds{10}));
  Guard none(0, seconds{1});
  none.begin(0);
  EXPECT_FALSE(none.worse(seconds{1}, 0, microseconds{10}));
  EXPECT_FALSE(none.worse(seconds{2}, 90000, microseconds{10})) << "no guard";
}

}  // namespace
}  // namespace headrace
