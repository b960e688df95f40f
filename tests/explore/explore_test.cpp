// SPDX-License-Identifier: Apache-2.0
// Exploring finds what it is for, in small programs with known defects.
#include "tests/explore/explore.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "cache/structures/asymmetric_fence.h"
#include "core/mutex.h"
#include "headrace/waiting.h"

namespace headrace::explore {
namespace {

using namespace std::chrono_literals;

// Whether both threads of Dekker's protocol may miss each other's store.
template <class Store, class Fence>
std::set<int> seen_by_both(const Store& store, const Fence& fence) {
  std::set<int> seen;
  explore([&](Trial& trial) {
    std::atomic<int> x{0};
    std::atomic<int> y{0};
    int by_first = 0;
    int by_second = 0;
    trial.together({[&] {
                      store(x);
                      fence(0);
                      by_first = y.load();
                    },
                    [&] {
                      store(y);
                      fence(1);
                      by_second = x.load();
                    }});
    seen.insert(by_first * 10 + by_second);
  });
  return seen;
}

// Pairs with nothing: that is the defect.
void store_relaxed(std::atomic<int>& to) { to.store(1, std::memory_order_relaxed); }

TEST(Explore, StoresInBuffers_AreMissed) {
  const auto seen = seen_by_both(store_relaxed, [](int) {});
  EXPECT_EQ(seen, (std::set<int>{0, 1, 10, 11}));
}

TEST(Explore, SequentiallyConsistentStores_AreNotMissed) {
  const auto seen = seen_by_both([](std::atomic<int>& to) { to.store(1); }, [](int) {});
  EXPECT_EQ(seen, (std::set<int>{1, 10, 11}));
}

TEST(Explore, HeavyFence_ServesBothThreads) {
  const auto seen = seen_by_both(store_relaxed, [](int thread) {
    if (!prepare_asymmetric_fence()) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    } else if (thread == 0) {
      light_fence();
    } else {
      heavy_fence();
    }
  });
  EXPECT_EQ(seen, (std::set<int>{1, 10, 11}));
}

TEST(Explore, SameSeeds_GiveTheSameSchedules) {
  const Scenario scenario = [](Trial& trial) {
    Mutex mutex;
    std::atomic<int> sum{0};
    const auto add = [&] {
      for (int i = 0; i < 5; ++i) {
        const MutexLock lock(mutex);
        sum += i;
      }
    };
    trial.together({add, add, add});
    trial.require(sum == 30, "nothing is lost");
  };
  const Exploration first = explore(scenario);
  const Exploration second = explore(scenario);
  EXPECT_EQ(first.hash, second.hash);
  EXPECT_GT(first.distinct, first.schedules / 4);
}

// The process of a failed scenario ends, so these run in a child.
void expect_failure(const Scenario& scenario, const char* why) {
  EXPECT_EXIT(explore(scenario), testing::ExitedWithCode(1), why);
}

TEST(Explore, LostUpdate_IsFound) {
  expect_failure(
      [](Trial& trial) {
        std::atomic<int> sum{0};
        const auto add = [&] { sum = sum + 1; };
        trial.together({add, add});
        trial.require(sum == 2, "both are counted");
      },
      "both are counted(.|\n)*Repeat it with: HEADRACE_EXPLORE_POLICY");
}

TEST(Explore, LockOrder_IsADeadlock) {
  expect_failure(
      [](Trial& trial) {
        Mutex a;
        Mutex b;
        const auto take = [](Mutex& first, Mutex& second) {
          const MutexLock one(first);
          const MutexLock other(second);
        };
        trial.together({[&] { take(a, b); }, [&] { take(b, a); }});
      },
      "deadlock(.|\n)*waits for a lock");
}

TEST(Explore, WakeBeforeTheStore_IsALostWakeUp) {
  expect_failure(
      [](Trial& trial) {
        std::atomic<std::uint32_t> word{0};
        trial.together({[&] {
                          while (word.load() == 0) system_waiting().wait(word, 0, 1h);
                        },
                        [&] {
                          system_waiting().wake_all(word);
                          word = 1;
                        }});
      },
      "lost wake-up: thread 1");
}

TEST(Explore, NotifyWithoutTheLock_IsALostWakeUp) {
  expect_failure(
      [](Trial& trial) {
        Mutex mutex;
        CondVar changed;
        std::atomic<bool> there{false};
        trial.together({[&] {
                          const MutexLock lock(mutex);
                          if (!there) changed.wait_for(mutex, 1h);
                        },
                        [&] {
                          there = true;
                          changed.notify_all();
                        }});
      },
      "lost wake-up");
}

// The first of the waiting threads is the one that the notification is for.
TEST(Explore, NotifyOne_WakesAnyWaiter) {
  expect_failure(
      [](Trial& trial) {
        Mutex mutex;
        CondVar changed;
        std::atomic<int> waiting{0};
        std::atomic<bool> first{false};
        std::atomic<bool> second{false};
        const auto await = [&](const std::atomic<bool>& there) {
          const MutexLock lock(mutex);
          ++waiting;
          while (!there) changed.wait_for(mutex, 1h);
        };
        const auto tell = [&](std::atomic<bool>& there) {
          const MutexLock lock(mutex);
          there = true;
          changed.notify_one();
        };
        trial.together({[&] {
                          await(first);
                          tell(second);
                        },
                        [&] {
                          while (waiting < 1) std::this_thread::yield();
                          await(second);
                        },
                        [&] {
                          while (waiting < 2) std::this_thread::yield();
                          tell(first);
                        }});
      },
      "lost wake-up");
}

TEST(Explore, ThreadsThatPollEachOther_AreALivelock) {
  expect_failure(
      [](Trial& trial) {
        std::atomic<bool> never{false};
        const auto poll = [&] {
          while (!never) std::this_thread::yield();
        };
        trial.together({poll, poll});
      },
      "livelock");
}

TEST(Explore, Crash_IsReported) {
  expect_failure(
      [](Trial& trial) {
        std::atomic<int*> at{nullptr};
        int value = 1;
        trial.together({[&] { at = &value; }, [&] { *at.load() = 2; }});
      },
      "signal 11");
}

// A spinning thread of high priority lets others run.
TEST(Explore, Spinning_EndsInEverySchedule) {
  explore([](Trial& trial) {
    std::atomic<bool> there{false};
    trial.together({[&] {
                      while (!there.load()) {
                      }
                    },
                    [&] { there = true; }});
  });
}

}  // namespace
}  // namespace headrace::explore
