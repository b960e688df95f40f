// SPDX-License-Identifier: Apache-2.0
#include "headrace/waiting.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <vector>

#include "headrace/clock.h"

namespace headrace {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Waiting, ReturnsAtOnceWhenTheWordHasChanged) {
  std::atomic<std::uint32_t> word{1};
  EXPECT_TRUE(system_waiting().wait(word, 0, hours{1}));
}

TEST(Waiting, GivesUpAfterItsBound) {
  std::atomic<std::uint32_t> word{0};
  EXPECT_FALSE(system_waiting().wait(word, 0, milliseconds{1}));
  EXPECT_FALSE(system_waiting().wait(word, 0, Nanoseconds{-5}));
  EXPECT_TRUE(system_waiting().wait(word, 1, Nanoseconds::max()));
}

TEST(Waiting, SignalsDoNotShortenIt) {
  struct sigaction ignore{};
  ignore.sa_handler = [](int) {};
  sigaction(SIGUSR1, &ignore, nullptr);
  std::atomic<std::uint32_t> word{0};
  std::atomic<bool> over{false};
  std::jthread waiter([&] {
    const Nanoseconds begin = system_clock().now();
    EXPECT_FALSE(system_waiting().wait(word, 0, milliseconds{50}));
    EXPECT_GE(system_clock().now() - begin, milliseconds{50});
    over = true;
  });
  while (!over) {
    pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(milliseconds{2});
  }
}

// A waiter checks again after each wake-up, as documented. One lost wake-up would make it wait for
// the hour.
TEST(Waiting, WakesEveryWaiter) {
  std::atomic<std::uint32_t> word{0};
  std::vector<std::jthread> waiters;
  std::atomic<int> woken{0};
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      while (word.load() == 0) system_waiting().wait(word, 0, hours{1});
      ++woken;
    });
  }
  word = 1;
  system_waiting().wake_all(word);
  waiters.clear();
  EXPECT_EQ(woken.load(), 4);
}

}  // namespace
}  // namespace headrace
