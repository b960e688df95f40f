// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/side_by_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "core/fail.h"
#include "headrace/clock.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::instruments {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Sleeps in each step, then returns units(number of the step); below 0: the step fails.
class Steady final : public Load {
 public:
  using Units = std::function<double(int step)>;
  explicit Steady(Units units, Nanoseconds time = Milliseconds{1}) : units_(units), time_(time) {}
  explicit Steady(double units, Nanoseconds time = Milliseconds{1})
      : Steady([units](int) { return units; }, time) {}
  Result<double> step() override {
    const double units = units_(steps_++);
    if (units < 0) return fail(ErrorCode::io, "worn out");
    std::this_thread::sleep_for(time_);
    return units;
  }
  void window_begins() override { steps_at_window_ = steps_; }

  int steps_ = 0;
  int steps_at_window_ = -1;

 private:
  const Units units_;
  const Nanoseconds time_;
};

CpuSet two() {
  const CpuSet all = usable_cpus();
  return {all.front(), all.back()};
}

TEST(SideBySide, RatesAreOfOneWindowInWhichAllWork) {
  Steady first(100);
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
    Steady fine(1);
    Steady broken([](int step) { return step == 3 ? -1 : 1; });
    std::vector<Load*> loads{&fine, &fine};
    loads[static_cast<std::size_t>(failing)] = &broken;
    const auto seen = side_by_side(two(), loads, std::chrono::seconds{60});
    ASSERT_FALSE(seen);
    EXPECT_EQ(seen.error().message, "worn out");
  }
}

TEST(SideBySide, ALoadThatStandsStillHasNoRate) {
  for (const auto& [works_once, message] :
       {std::pair(false, "not all threads were at work within 2 s; is the machine busy?"),
        std::pair(true, "a thread had no CPU all the while; is the machine busy?")}) {
    Steady fine(1);
    Steady still([once = works_once](int step) { return once && step == 0 ? 1 : 0; });
    std::vector<Load*> loads{&fine, &still};
    const auto seen = side_by_side(two(), loads, Milliseconds{10});
    ASSERT_FALSE(seen);
    EXPECT_EQ(seen.error().code, ErrorCode::timed_out);
    EXPECT_EQ(seen.error().message, message);
  }
}

TEST(SideBySide, AWindowGoesOnUntilAllHaveWorkedInIt) {
  Steady fine(1);
  Steady dozing([](int step) {  // sleeps once for more than the window
    if (step == 10) std::this_thread::sleep_for(Milliseconds{200});
    return 1;
  });
  std::vector<Load*> loads{&fine, &dozing};
  const auto seen = side_by_side(two(), loads, Milliseconds{30});
  ASSERT_TRUE(seen) << seen.error().message;
  EXPECT_GT(seen->rates[1], 0);
  EXPECT_LE(seen->rates[1], 1'000 * 1.05) << "over the whole window";
}

}  // namespace
}  // namespace headrace::instruments
