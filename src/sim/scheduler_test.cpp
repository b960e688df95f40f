// SPDX-License-Identifier: Apache-2.0
#include "sim/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "core/mutex.h"
#include "core/thread.h"

namespace headrace::sim {
namespace {

using namespace std::chrono_literals;

std::thread start(std::function<void()> body) {
  auto thread = start_thread("test", std::move(body));
  EXPECT_TRUE(thread.has_value());
  return *std::move(thread);
}

TEST(Scheduler, Sleep_TakesOnlyVirtualTime) {
  const Nanoseconds before = system_clock().now();
  const Status ended = run({}, [](Scheduler& turns) {
    sleep_for(1h);
    EXPECT_EQ(turns.now(), 1h);
  });
  EXPECT_TRUE(ended.has_value());
  EXPECT_LT(system_clock().now() - before, 30min);
}

TEST(Scheduler, Threads_RunInTheOrderOfTheirTimes) {
  std::vector<int> order;
  const Status ended = run({}, [&](Scheduler&) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 100; ++i) {
      threads.push_back(start([&order, i] {
        for (int turn = 0; turn < 3; ++turn) {
          sleep_for(std::chrono::milliseconds(100 + 7 * i % 100));
          order.push_back(i);
        }
      }));
    }
    for (std::thread& thread : threads) join(thread);
  });
  ASSERT_TRUE(ended.has_value());
  ASSERT_EQ(order.size(), 300U);
  std::vector<std::pair<int, int>> expected;
  for (int i = 0; i < 100; ++i) {
    for (int turn = 1; turn <= 3; ++turn) expected.emplace_back(turn * (100 + 7 * i % 100), i);
  }
  std::ranges::sort(expected);
  for (std::size_t k = 0; k < order.size(); ++k) EXPECT_EQ(order[k], expected[k].second);
}

TEST(Scheduler, WakenWord_EndsTheWaitAtOnce) {
  const Status ended = run({}, [](Scheduler& turns) {
    std::atomic<std::uint32_t> word{0};
    std::thread waker = start([&] {
      turns.sleep(3s);
      word = 1;
      turns.wake_all(word);
    });
    EXPECT_TRUE(turns.wait(word, 0, 1h));
    EXPECT_EQ(turns.now(), 3s);
    EXPECT_FALSE(turns.wait(word, 1, 2s));
    EXPECT_EQ(turns.now(), 5s);
    EXPECT_TRUE(turns.wait(word, 0, 2s));
    EXPECT_FALSE(turns.wait(word, 1, -1s));
    EXPECT_EQ(turns.now(), 5s);
    join(waker);
  });
  EXPECT_TRUE(ended.has_value());
}

TEST(Scheduler, ConditionVariable_WakesAndTimesOutInVirtualTime) {
  const Status ended = run({}, [](Scheduler& turns) {
    Mutex mutex;
    CondVar there;
    int queue = 0;
    int taken = 0;
    std::vector<std::thread> workers;
    for (int i = 0; i < 3; ++i) {
      workers.push_back(start([&] {
        const MutexLock lock(mutex);
        while (queue == 0) there.wait_for(mutex, 1h);
        --queue;
        ++taken;
      }));
    }
    for (int i = 0; i < 3; ++i) {
      turns.sleep(1s);
      const MutexLock lock(mutex);
      ++queue;
      i == 0 ? there.notify_one() : there.notify_all();
    }
    for (std::thread& worker : workers) join(worker);
    EXPECT_EQ(taken, 3);
    EXPECT_EQ(turns.now(), 3s);
    const MutexLock lock(mutex);
    there.wait_for(mutex, 4s);
    EXPECT_EQ(turns.now(), 7s);
  });
  EXPECT_TRUE(ended.has_value());
}

TEST(Scheduler, DetachedThread_IsWaitedFor) {
  bool ran = false;
  const Status ended = run({}, [&](Scheduler&) {
    start([&ran] {
      sleep_for(1s);
      ran = true;
    }).detach();
  });
  EXPECT_TRUE(ended.has_value());
  EXPECT_TRUE(ran);
}

TEST(Scheduler, ExceptionOfTheBody_IsThrownAgainAfterTheThreadsHaveEnded) {
  bool ran = false;
  EXPECT_THROW((void)run({},
                         [&](Scheduler&) {
                           start([&ran] {
                             sleep_for(1s);
                             ran = true;
                           }).detach();
                           throw std::runtime_error("of the body");
                         }),
               std::runtime_error);
  EXPECT_TRUE(ran);
}

TEST(Scheduler, Deadlock_EndsWithTheThreadsAndTheirReasons) {
  const Status ended = run({}, [](Scheduler& turns) {
    std::thread parked = start([&turns] { turns.park("the end of the world"); });
    join(parked);
  });
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, ErrorCode::io);
  EXPECT_EQ(ended.error().message,
            "no thread can run, and nothing will happen: thread 0 (main) waits for the end of a "
            "thread, thread 1 (test) waits for the end of the world");
}

TEST(Scheduler, TimeLimit_EndsTheRun) {
  const Status ended = run({.limit = 10s}, [](Scheduler& turns) {
    for (;;) turns.sleep(1s);
  });
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, ErrorCode::timed_out);
  EXPECT_EQ(ended.error().message,
            "the simulated time reached its limit of 10 s: thread 0 (main) waits for a sleep");
}

TEST(Scheduler, ThreadThatKeepsItsTurn_EndsTheRun) {
  static std::atomic<bool> over{false};  // outlives the run
  const Status ended = run({.longest_turn = 200ms}, [](Scheduler&) {
    while (!over) std::this_thread::sleep_for(1ms);
  });
  over = true;
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, ErrorCode::timed_out);
  EXPECT_EQ(ended.error().message,
            "thread 0 has kept its turn for 200 ms; does it wait for something that is not "
            "simulated?");
}

TEST(Scheduler, Stop_IsSeenByTheBody) {
  const Status ended = run({.stop = [](Nanoseconds) { return true; }}, [](Scheduler& turns) {
    while (!turns.stopping()) turns.sleep(1us);
  });
  EXPECT_TRUE(ended.has_value());
}

TEST(Scheduler, BodyThatIgnoresStop_IsLeftBehind) {
  const Status ended =
      run({.limit = Nanoseconds::max(), .stop = [](Nanoseconds) { return true; }, .grace = 100ms},
          [](Scheduler& turns) {
            for (;;) turns.sleep(1ns);
          });
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().message, "the run did not end within 100 ms after it was stopped");
}

class Alarm final : public EventSource {
 public:
  Alarm(Scheduler& turns, Nanoseconds time) : turns_(turns), time_(time) { turns.add(*this); }
  ~Alarm() override { turns_.remove(*this); }
  Nanoseconds next() override { return time_; }
  void advance(Nanoseconds now) override {
    if (now < time_) return;
    time_ = Nanoseconds::max();
    if (sleeper != nullptr) turns_.ready(*sleeper);
  }
  Thread* sleeper = nullptr;

 private:
  Scheduler& turns_;
  Nanoseconds time_;
};

TEST(Scheduler, Event_MakesAThreadReady) {
  const Status ended = run({}, [](Scheduler& turns) {
    Alarm alarm(turns, 5s);
    alarm.sleeper = &turns.self();
    turns.park("the alarm");
    EXPECT_EQ(turns.now(), 5s);
  });
  EXPECT_TRUE(ended.has_value());
}

// Gives its turn to the last that is ready, at each point.
class Last final : public TurnPolicy {
 public:
  std::size_t next(std::span<Thread* const> ready) override { return ready.size() - 1; }
  bool yields(const Thread&, std::span<Thread* const>) override { return ++points_ % 2 == 0; }

 private:
  int points_ = 0;
};

TEST(Scheduler, Policy_ChoosesWhoRunsAndWhere) {
  std::string order;
  const Status ended = run({.policy = std::make_unique<Last>()}, [&](Scheduler& turns) {
    std::vector<std::thread> threads;
    for (const char name : {'a', 'b'}) {
      threads.push_back(start([&turns, &order, name] {
        order += name;
        turns.sleep(1s);
        order += name;
      }));
    }
    turns.point();
    order += 'm';
    for (std::thread& thread : threads) join(thread);
  });
  EXPECT_TRUE(ended.has_value());
  EXPECT_EQ(order, "mbaba");
}

TEST(Scheduler, ThreadThatCannotBeStarted_IsWithdrawn) {
  const Status ended = run({}, [](Scheduler& turns) {
    {
      const auto never = turns.adopt("never", [] {});
    }
    turns.sleep(1s);
  });
  EXPECT_TRUE(ended.has_value());
}

}  // namespace
}  // namespace headrace::sim
