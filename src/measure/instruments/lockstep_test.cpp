// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/lockstep.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace headrace::instruments {
namespace {

TEST(CommonStart, OneThatComesAfterTheOthersGaveUpDoesNotBegin) {
  CommonStart start(3, std::chrono::milliseconds{1});
  std::thread other([&] { EXPECT_FALSE(start.begin()); });
  EXPECT_FALSE(start.begin());
  other.join();
  EXPECT_FALSE(start.begin()) << "alone it would wait for the others at their first meeting";
}

// A thread may arrive just as another gives up: all begin, or none.
TEST(CommonStart, IsTheSameToAll) {
  constexpr std::size_t kThreads = 3;
  for (int i = 0; i < 300; ++i) {
    CommonStart start(kThreads, std::chrono::microseconds{i});
    std::atomic<std::size_t> begun{0};
    std::vector<std::thread> threads;
    for (std::size_t me = 0; me < kThreads; ++me) {
      threads.emplace_back([&] { begun += start.begin() ? 1 : 0; });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(begun == 0 || begun == kThreads) << begun;
  }
  CommonStart patient(1, std::chrono::hours{1});
  EXPECT_TRUE(patient.begin());
}

using Milliseconds = std::chrono::milliseconds;

TEST(CommonEnd, ARateIsOfTheThreadsOwnTime) {
  CommonEnd end(1);
  ManualClock clock;
  const auto step = [&] { return clock.advance(Milliseconds{4}), 5.0; };
  const auto timed = end.work(Milliseconds{10}, step, clock);
  EXPECT_DOUBLE_EQ(timed.seconds, 0.012);
  EXPECT_DOUBLE_EQ(timed.done, 15);
  EXPECT_DOUBLE_EQ(timed.moved, 15);
}

// The second thread ends its own time only when the first has worked past its own.
TEST(CommonEnd, AThreadWorksOnUntilTheTimeOfAllIsOver) {
  CommonEnd end(2);
  ManualClock first_clock;
  ManualClock second_clock;
  std::atomic<int> first_steps{0};
  std::atomic<bool> first_over{false};
  CommonEnd::Timed second;
  std::thread other([&] {
    const auto step = [&] {
      while (first_steps.load() < 20 && !first_over.load()) std::this_thread::yield();
      return second_clock.advance(Milliseconds{1}), 1.0;
    };
    second = end.work(Milliseconds{1}, step, second_clock);
  });
  const auto step = [&] {
    first_clock.advance(std::chrono::microseconds{1});
    ++first_steps;
    return 1.0;
  };
  const auto first = end.work(std::chrono::microseconds{5}, step, first_clock);
  first_over = true;
  other.join();
  EXPECT_DOUBLE_EQ(first.done, 5) << "later work is in no rate";
  EXPECT_DOUBLE_EQ(first.seconds, 5e-6);
  EXPECT_GE(first.moved, 20);
  EXPECT_DOUBLE_EQ(second.done, 1);
}

TEST(CommonEnd, AThreadThatNeverEndsHoldsTheOthersForSecondsAtMost) {
  CommonEnd end(2);
  ManualClock clock;
  const auto step = [&] { return clock.advance(Milliseconds{100}), 1.0; };
  const auto timed = end.work(Milliseconds{100}, step, clock);
  EXPECT_DOUBLE_EQ(timed.done, 1);
  EXPECT_DOUBLE_EQ(timed.moved, 21);
}

// Plain integers: writes before a meeting are read after it without a race.
TEST(Lockstep, NoThread_IsARoundAhead) {
  constexpr std::size_t kThreads = 4;
  constexpr int kRounds = 300;
  Lockstep lockstep(kThreads);
  std::vector<int> rounds(kThreads, 0);
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (std::size_t me = 0; me < kThreads; ++me) {
    threads.emplace_back([&, me] {
      for (int i = 0; i < kRounds; ++i) {
        ++rounds[me];
        lockstep.meet();
        for (const int other : rounds) wrong[me] += other != rounds[me] ? 1 : 0;
        lockstep.meet();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rounds, std::vector<int>(kThreads, kRounds));
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

// A thread that leaves a meeting late must not see that the next one is the last: it would not
// attend it.
TEST(Lockstep, AllStopAtTheSameMeeting) {
  constexpr std::size_t kThreads = 4;
  for (int end = 1; end <= 200; ++end) {
    Lockstep lockstep(kThreads);
    std::vector<int> rounds(kThreads, 0);
    std::vector<std::thread> threads;
    for (std::size_t me = 0; me < kThreads; ++me) {
      threads.emplace_back([&, me] {
        do {
          if (me == 0 && rounds[me] + 1 == end % 7 + 1) lockstep.stop();
          ++rounds[me];
        } while (!lockstep.meet());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(rounds, std::vector<int>(kThreads, end % 7 + 1));
  }
}

TEST(Lockstep, OneThreadMeetsItself) {
  Lockstep lockstep(1);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(lockstep.meet());
  lockstep.stop();
  EXPECT_TRUE(lockstep.meet());
}

}  // namespace
}  // namespace headrace::instruments
