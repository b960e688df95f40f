// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/side_by_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "core/fail.h"
#include "headrace/clock.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::instruments {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Does `units` per step of length `time`; may begin late, or fail.
class Steady final : public Load {
 public:
  Steady(double units, Nanoseconds time, int fails_at = -1)
      : units_(units), time_(time), fails_at_(fails_at) {}
  Result<double> step() override {
    if (steps_++ == fails_at_) return fail(ErrorCode::io, "worn out");
    std::this_thread::sleep_for(time_);
    return units_;
  }
  void window_begins() override { steps_at_window_ = steps_; }

  int steps_ = 0;
  int steps_at_window_ = -1;

 private:
  const double units_;
  const Nanoseconds time_;
  const int fails_at_;
};

CpuSet two() {
  const CpuSet all = usable_cpus();
  return {all.front(), all.back()};
}

TEST(SideBySide, RatesAreOfOneWindowInWhichAllWork) {
  Steady first(100, Milliseconds{1});
  Steady second(10, Milliseconds{2});
  std::vector<Load*> loads{&first, &second};
  const Nanoseconds begin = system_clock().now();
  const auto seen = side_by_side(two(), loads, Milliseconds{100});
  const double all = seconds(system_clock().now() - begin);
  ASSERT_TRUE(seen) << seen.error().message;
  ASSERT_EQ(seen->rates.size(), 2u);
  EXPECT_GT(first.steps_at_window_, 0) << "not before it has been at work";
  EXPECT_EQ(second.steps_at_window_, -1) << "the first keeps the time";
  // The first load's steps give the length of the window.
  const double window = 100.0 * (first.steps_ - first.steps_at_window_) / seen->rates[0];
  EXPECT_GE(window, 0.1 * 0.999);
  EXPECT_LE(window, all);
  const double steps = seen->rates[1] * window / 10;
  EXPECT_NEAR(steps, std::round(steps), 1e-6) << "the same window";
  // A sleep is never shorter than requested; one may begin before the window and end in it.
  EXPECT_LE(steps, window / 0.002 + 1);
  EXPECT_GE(steps, 1);
  EXPECT_LT(steps, second.steps_) << "not those before the window";
  EXPECT_EQ(seen->done, (std::vector<double>{100.0 * first.steps_, 10.0 * second.steps_}));
  EXPECT_LT(seen->cpu_share, 0.9) << "who sleeps has no CPU";
}

TEST(SideBySide, AnErrorOfAnyLoadEndsAll) {
  for (const int failing : {0, 1}) {
    Steady fine(1, Milliseconds{1});
    Steady broken(1, Milliseconds{1}, 3);
    std::vector<Load*> loads{&fine, &fine};
    loads[static_cast<std::size_t>(failing)] = &broken;
    const auto seen = side_by_side(two(), loads, std::chrono::seconds{60});
    ASSERT_FALSE(seen);
    EXPECT_EQ(seen.error().message, "worn out");
  }
}

TEST(SideBySide, IdleLoad_IsReported) {
  Steady fine(1, Milliseconds{1});
  Steady idle(0, Milliseconds{1});
  std::vector<Load*> loads{&fine, &idle};
  const auto seen = side_by_side(two(), loads, Milliseconds{10});
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().message, "not all threads were at work within 2 s; is the machine busy?");
}

// Works once and never again.
class Tired final : public Load {
 public:
  Result<double> step() override {
    std::this_thread::sleep_for(Milliseconds{1});
    return steps_++ == 0 ? 1 : 0;
  }

 private:
  int steps_ = 0;
};

TEST(SideBySide, ALoadThatStoodStillInTheWindowHasNoRate) {
  Steady fine(1, Milliseconds{1});
  Tired tired;
  std::vector<Load*> loads{&fine, &tired};
  const auto seen = side_by_side(two(), loads, Milliseconds{10});
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code, ErrorCode::timed_out);
  EXPECT_EQ(seen.error().message, "a thread had no CPU all the while; is the machine busy?");
}

// Works, then sleeps for less than the window.
class Dozing final : public Load {
 public:
  Result<double> step() override {
    std::this_thread::sleep_for(steps_++ == 10 ? Milliseconds{200} : Milliseconds{1});
    return 1;
  }

 private:
  int steps_ = 0;
};

TEST(SideBySide, AWindowGoesOnUntilAllHaveWorkedInIt) {
  Steady fine(1, Milliseconds{1});
  Dozing dozing;
  std::vector<Load*> loads{&fine, &dozing};
  const auto seen = side_by_side(two(), loads, Milliseconds{30});
  ASSERT_TRUE(seen) << seen.error().message;
  EXPECT_GT(seen->rates[1], 0);
  EXPECT_LE(seen->rates[1], 1'000 * 1.05) << "over the whole window";
}

}  // namespace
}  // namespace headrace::instruments
