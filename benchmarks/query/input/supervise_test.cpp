// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/input/supervise.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <thread>

#include "core/fail.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

// A sleep advances the clock, unless `still` stops it: then the other thread may take any time.
class TestWaiting final : public Waiting {
 public:
  explicit TestWaiting(ManualClock& clock) : clock_(clock) {}
  bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
            Nanoseconds timeout) override {
    if (asleep) asleep();
    if (still && still()) {
      std::this_thread::sleep_for(1ms);
      return true;
    }
    clock_.advance(timeout);
    return word.load() != seen;
  }
  void wake_all(const std::atomic<std::uint32_t>&) override { ++woken; }

  std::atomic<int> woken = 0;
  std::function<void()> asleep;
  std::function<bool()> still;

 private:
  ManualClock& clock_;
};

class SuperviseTest : public testing::Test {
 protected:
  Status supervise_work(std::function<Status()> work) {
    return supervise({.clock = clock_,
                      .waiting = waiting_,
                      .stop = [this] { return asked_++ >= stop_after_; },
                      .progress = [this] { return progress_.load(); },
                      .source = "the test"},
                     told_, std::move(work));
  }
  // Work that ends when requested, and has the time to.
  Status supervise_obedient() {
    waiting_.still = [this] { return told_.load(); };
    return supervise_work([this] { return obedient(); });
  }
  Status obedient() {
    while (!told_) std::this_thread::yield();
    return fail(ErrorCode::cancelled, "stopped");
  }

  ManualClock clock_;
  TestWaiting waiting_{clock_};
  std::atomic<bool> told_ = false;
  std::atomic<std::uint64_t> progress_ = 0;
  int asked_ = 0;
  int stop_after_ = std::numeric_limits<int>::max();
};

TEST_F(SuperviseTest, GivesTheOutcomeOfTheWork) {
  waiting_.still = [] { return true; };
  EXPECT_TRUE(supervise_work([] { return Status{}; }));
  const auto failed = supervise_work([] { return Status(fail(ErrorCode::io, "broken")); });
  EXPECT_EQ(failed.error(), (Error{ErrorCode::io, "broken"}));
  EXPECT_FALSE(told_);
}

TEST_F(SuperviseTest, WorkIsNotBegunWhenItShallStopAtOnce) {
  stop_after_ = 0;
  bool begun = false;
  const auto outcome = supervise_work([&] {
    begun = true;
    return Status{};
  });
  EXPECT_EQ(outcome.error().code, ErrorCode::cancelled);
  EXPECT_FALSE(begun);
}

TEST_F(SuperviseTest, WorkThatStopsInTimeIsWaitedFor) {
  stop_after_ = 3;
  EXPECT_EQ(supervise_obedient().error().code, ErrorCode::cancelled);
  EXPECT_TRUE(told_);
}

TEST_F(SuperviseTest, NoProgress_TimesOut) {
  const auto outcome = supervise_obedient();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::timed_out);
  EXPECT_EQ(outcome.error().message,
            "nothing came from the test for 60 s; the kernel log (dmesg) says more");
  EXPECT_GE(clock_.now(), kStallBound);
}

TEST_F(SuperviseTest, Progress_MayTakeAnyTime) {
  waiting_.asleep = [this] { ++progress_; };
  const auto outcome = supervise_work([this] {
    while (clock_.now() < 10 * kStallBound) std::this_thread::yield();
    return Status{};
  });
  EXPECT_TRUE(outcome);
}

// Work left behind continues and keeps its memory until it ends. It uses nothing of the caller's.
TEST_F(SuperviseTest, WorkThatDoesNotEndIsLeftBehind) {
  stop_after_ = 3;
  struct State {
    std::atomic<bool> go_on = false;
  };
  auto state = std::make_shared<State>();
  const auto outcome = supervise_work([state] {
    while (!state->go_on) std::this_thread::sleep_for(1ms);
    return Status{};
  });
  EXPECT_EQ(outcome.error().code, ErrorCode::cancelled);
  EXPECT_GE(clock_.now(), kGrace);
  EXPECT_LT(clock_.now(), kStallBound);
  const std::weak_ptr<State> left = state;
  state->go_on = true;
  state.reset();
  for (int i = 0; i < 30'000 && !left.expired(); ++i) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(left.expired());
  EXPECT_EQ(waiting_.woken, 0) << "it may be gone by now";
}

}  // namespace
}  // namespace headrace
