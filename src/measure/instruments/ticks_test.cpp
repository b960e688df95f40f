// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/ticks.h"

#include <gtest/gtest.h>

#include <thread>

#include "headrace/clock.h"

namespace headrace::instruments {
namespace {

// A thread that loses its CPU for 3 ms between every fifth two readings.
TEST(TicksTest, ReadsBothClocksWhileNothingCameBetween) {
  std::uint64_t nanoseconds = 0;
  int readings = 0;
  const auto pass = [&] { nanoseconds += ++readings % 5 == 2 ? 3'000'000 : 20; };
  const auto clock = [&] { return pass(), nanoseconds; };
  const auto counter = [&] { return pass(), 3 * nanoseconds; };
  const SameMoment moment = read_bracketed(clock, counter);
  EXPECT_EQ(moment.counter, 3 * moment.clock);
}

// A counter of 2.5 GHz, read in 20 ns; every seventh reading is interrupted for 3 ms.
class FakeCounter {
 public:
  std::uint64_t clock() { return pass(), nanoseconds_; }
  std::uint64_t counter() { return pass(), nanoseconds_ * 5 / 2; }

 private:
  void pass() { nanoseconds_ += ++readings_ % 7 == 0 ? 3'000'000 : 20; }

  std::uint64_t nanoseconds_ = 0;
  int readings_ = 0;
};

TEST(TicksTest, TheRateOfTheCounterIsThatOfTheClock) {
  FakeCounter fake;
  const auto clock = [&] { return fake.clock(); };
  const auto counter = [&] { return fake.counter(); };
  EXPECT_NEAR(ns_per_tick(clock, counter, std::chrono::milliseconds{20}), 0.4, 1e-6);
  const std::uint64_t before = fake.clock();
  (void)ns_per_tick(clock, counter, std::chrono::seconds{1});
  EXPECT_GE(fake.clock() - before, 1'000'000'000U) << "a short time would be a rate of little";
}

TEST(TicksTest, TheOverheadIsThatOfTwoReadingsThatNothingInterrupted) {
  FakeCounter fake;
  EXPECT_EQ(least_step([&] { return fake.counter(); }), 50U);
}

// Read between two readings of the system's clock at both ends: an interrupt can only widen the
// bounds.
TEST(TicksTest, ASpanIsThatOfTheSystemsClock) {
  const Ticks& ticks = Ticks::instance();
  const auto read = [&] { return ticks.now(); };
  const auto clock = [] { return static_cast<std::uint64_t>(system_clock().now().count()); };
  const SameMoment begin = read_bracketed(clock, read);
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  const SameMoment end = read_bracketed(clock, read);
  const auto by_clock = static_cast<double>(end.clock - begin.clock);
  const auto by_ticks = static_cast<double>(ticks.span(begin.counter, end.counter).count());
  EXPECT_NEAR(by_ticks, by_clock, by_clock / 100);
  EXPECT_NEAR(ticks.nanoseconds(end.counter - begin.counter), by_ticks, 1);
  const std::uint64_t ticks_of_it = ticks.ticks(Nanoseconds{static_cast<std::int64_t>(by_ticks)});
  EXPECT_NEAR(static_cast<double>(ticks_of_it), static_cast<double>(end.counter - begin.counter),
              5);
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
