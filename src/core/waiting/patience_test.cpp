// SPDX-License-Identifier: Apache-2.0
#include "core/waiting/patience.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using namespace std::chrono_literals;

// A sleep takes `times` its requested time by the clock; 0: the clock stands still.
class FakeWaiting final : public Waiting {
 public:
  FakeWaiting(ManualClock& clock, int times) : clock_(clock), times_(times) {}
  bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
            Nanoseconds timeout) override {
    ++sleeps;
    clock_.advance(times_ * timeout);
    return word.load() != seen;
  }
  void wake_all(const std::atomic<std::uint32_t>&) override {}
  int sleeps = 0;

 private:
  ManualClock& clock_;
  const int times_;
};

TEST(AttendedTime, PauseOfTheProcess_DoesNotCount) {
  ManualClock clock;
  clock.advance(1h);
  AttendedTime time(clock, 2s);
  EXPECT_EQ(time.now(), 0s);
  clock.advance(2s);
  EXPECT_EQ(time.now(), 2s);
  clock.advance(36s);
  EXPECT_EQ(time.now(), 2s);
  clock.advance(1s);
  EXPECT_EQ(time.now(), 3s);
}

TEST(Patience, EndsAfterItsBoundOfSleeping) {
  ManualClock clock;
  FakeWaiting waiting(clock, 1);
  Patience patience(clock, waiting, 10s);
  const std::atomic<std::uint32_t> word{0};
  while (!patience.over()) patience.sleep(word, 0, 300ms);
  EXPECT_EQ(clock.now(), 10s);
}

TEST(Patience, EndsUnderAClockThatStandsStill) {
  ManualClock clock;
  FakeWaiting waiting(clock, 0);
  Patience patience(clock, waiting, 10s);
  const std::atomic<std::uint32_t> word{0};
  while (!patience.over()) patience.sleep(word, 0);
  EXPECT_EQ(waiting.sleeps, 10);
}

// Stopped for 40 s in each sleep of a second, and between two sleeps: each sleep counts as its
// requested time.
TEST(Patience, PauseOfTheProcess_UsesNoBound) {
  ManualClock clock;
  FakeWaiting waiting(clock, 40);
  Patience patience(clock, waiting, 10s);
  const std::atomic<std::uint32_t> word{0};
  patience.sleep(word, 0);
  EXPECT_EQ(patience.left(), 9s);
  clock.advance(1h);
  EXPECT_EQ(patience.left(), 9s);
  while (!patience.over()) patience.sleep(word, 0);
  EXPECT_EQ(waiting.sleeps, 10);
}

// Woken repeatedly by other events: the clock counts.
TEST(Patience, CountsSleepsThatEndEarlyByTheClock) {
  ManualClock clock;
  FakeWaiting waiting(clock, 0);
  Patience patience(clock, waiting, 10s);
  const std::atomic<std::uint32_t> word{1};
  for (int i = 0; i < 5; ++i) {
    patience.sleep(word, 0);
    clock.advance(1s);
  }
  EXPECT_EQ(patience.left(), 5s);
  patience.renew();
  EXPECT_EQ(patience.left(), 10s);
  patience.give_up();
  EXPECT_TRUE(patience.over());
  clock.advance(1s);
  patience.give_up();
  EXPECT_TRUE(patience.over());
}

}  // namespace
}  // namespace headrace
