// SPDX-License-Identifier: Apache-2.0
#include "headrace/clock.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using std::chrono::seconds;

TEST(Clock, NeverGoesBackwards) {
  Nanoseconds before = system_clock().now();
  for (int i = 0; i < 1000; ++i) {
    const Nanoseconds now = system_clock().now();
    EXPECT_GE(now, before);
    before = now;
  }
}

TEST(ManualClock, MovesOnlyByAdvance) {
  ManualClock clock;
  EXPECT_EQ(clock.now(), Nanoseconds{0});
  clock.advance(seconds{2});
  EXPECT_EQ(clock.now(), seconds{2});
}

}  // namespace
}  // namespace headrace
