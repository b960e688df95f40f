// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/ticks.h"

#include <gtest/gtest.h>

#include <thread>

#include "headrace/clock.h"

namespace headrace::instruments {
namespace {

// Both clocks around the same sleep: the outer one has seen at least as much.
// A thread that is taken off its CPU for 3 ms between every fifth two readings.
TEST(TicksTest, ReadsBothClocksWhileNothingCameBetween) {
  std::uint64_t nanoseconds = 0;
  int readings = 0;
  const auto pass = [&] { nanoseconds += ++readings % 5 == 2 ? 3'000'000 : 20; };
  const auto clock = [&] { return pass(), nanoseconds; };
  const auto counter = [&] { return pass(), 3 * nanoseconds; };
  const SameMoment moment = read_bracketed(clock, counter);
  EXPECT_EQ(moment.counter, 3 * moment.clock);
}

TEST(TicksTest, TellsTheTimeOfTheSystem) {
  const Ticks& ticks = Ticks::instance();
  const Nanoseconds outer = system_clock().now();
  const std::uint64_t begin = ticks.now();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  const Nanoseconds by_ticks = ticks.span(begin, ticks.now());
  const Nanoseconds by_clock = system_clock().now() - outer;
  EXPECT_GE(by_ticks, std::chrono::milliseconds{49});
  EXPECT_LE(seconds(by_ticks), seconds(by_clock) * 1.02);
}

TEST(TicksTest, ConvertsBothWays) {
  const Ticks& ticks = Ticks::instance();
  const auto second = ticks.ticks(std::chrono::seconds{1});
  EXPECT_NEAR(ticks.nanoseconds(second), 1e9, 10);
  EXPECT_LT(ticks.nanoseconds(ticks.overhead()), 1000) << "reading the clock is cheap";
}

TEST(TicksTest, NeverGoesBackwards) {
  std::uint64_t last = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t now = Ticks::instance().now();
    EXPECT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace headrace::instruments
