// SPDX-License-Identifier: Apache-2.0
// Transfer: wait, poll, co_await, callbacks and the eventfd.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <coroutine>
#include <thread>

#include "move/mover_testing.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using test::by_hand;
using test::kCpuA;
using test::Rig;

bool readable(int descriptor) {
  pollfd look{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&look, 1, 0) == 1;
}

// A coroutine that starts at once and stores its result.
struct Task {
  struct promise_type {
    std::optional<Result<MoveStats>> result;
    Task get_return_object() {
      return Task{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(Result<MoveStats> value) { result = std::move(value); }
    void unhandled_exception() { std::terminate(); }
  };
  explicit Task(std::coroutine_handle<promise_type> made) : handle(made) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() { handle.destroy(); }
  std::coroutine_handle<promise_type> handle;
};

Task awaiting(Transfer transfer) { co_return co_await transfer; }

Task in_turn(Rig& rig, std::uint64_t pieces) {
  MoveStats sum;
  for (std::uint64_t i = 0; i < pieces; ++i) {
    const auto one = co_await rig.copy(i % 1000 * 64, 64);
    if (!one) co_return one;
    sum.bytes += one->bytes;
  }
  co_return sum;
}

// A clock that stands still must not make a wait endless.
TEST(Transfer, StoppedClock_WaitStillEnds) {
  ManualClock still;
  MoverOptions options;
  options.clock = &still;
  Rig rig({}, options);
  rig.fake->hold(true);
  const Transfer transfer = rig.copy(0, 4096);
  EXPECT_EQ(transfer.wait(3ms).error().code, ErrorCode::timed_out);
  rig.fake->hold(false);
  EXPECT_TRUE(transfer.wait());
}

TEST(Transfer, TimedOutWait_ReportsTheMovesAge) {
  Rig rig({}, by_hand());
  rig.fake->hold(true);
  const Transfer transfer = rig.copy(0, 4096);
  EXPECT_FALSE(transfer.wait(200ms));
  const std::string text = transfer.wait(0s).error().message;
  EXPECT_NE(text.find("4 KiB is not done after 200 ms"), std::string::npos) << text;
  rig.fake->hold(false);
}

// The process is stopped for an hour: the move has not had its time yet.
TEST(Transfer, PausedProcess_DoesNotUseUpAWait) {
  Rig rig({}, by_hand());
  rig.fake->hold(true);
  const Transfer transfer = rig.copy(0, 4096);
  int sleeps = 0;
  rig.waiting.asleep = [&] {
    if (++sleeps == 1) rig.clock.advance(1h);
    if (sleeps == 5) rig.fake->hold(false);
  };
  EXPECT_TRUE(transfer.wait(60s));
}

// As in a simulation: waiting moves the clock.
TEST(Transfer, ManualClock_AdvancesWhileWaiting) {
  Rig rig({.delay = 5s}, by_hand());
  const Transfer transfer = rig.copy(0, 4096);
  const auto outcome = transfer.wait();
  ASSERT_TRUE(outcome);
  EXPECT_GE(outcome->total, 5s);
  EXPECT_GE(rig.clock.now(), 5s);
}

TEST(Transfer, End_WakesAllWaiters) {
  Rig rig({.own_thread = true});
  rig.fake->hold(true);
  const Transfer transfer = rig.copy(0, 100'000);
  std::atomic<int> woken{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { woken += transfer.wait().has_value(); });
    }
    rig.fake->hold(false);
  }
  EXPECT_EQ(woken, 4);
}

TEST(Transfer, End_MakesTheDescriptorReadableForGood) {
  Rig rig({}, by_hand());
  const Transfer transfer = rig.copy(0, 4096);
  const auto descriptor = transfer.event_fd();
  ASSERT_TRUE(descriptor);
  EXPECT_EQ(*transfer.event_fd(), *descriptor) << "one per move";
  EXPECT_FALSE(readable(*descriptor));
  rig.fake->finish(1);
  EXPECT_TRUE(readable(*descriptor));
  std::uint64_t count = 0;
  EXPECT_EQ(read(*descriptor, &count, sizeof count), 8);
  EXPECT_TRUE(readable(*descriptor)) << "also when somebody read it";
}

TEST(Transfer, DoneMove_HasAReadableDescriptor) {
  Rig rig({}, by_hand());
  const Transfer transfer = rig.copy(0, 4096);
  ASSERT_TRUE(transfer.wait());
  EXPECT_TRUE(readable(transfer.event_fd().value()));
  EXPECT_TRUE(readable(Transfer().event_fd().value()));
  EXPECT_TRUE(readable(rig.copy(0, 0).event_fd().value()));
}

TEST(Transfer, NoDescriptorLeft_IsAnError) {
  Rig rig({}, by_hand());
  const Transfer transfer = rig.copy(0, 4096);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto descriptor = transfer.event_fd();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_FALSE(descriptor);
  EXPECT_EQ(descriptor.error().code, ErrorCode::exhausted);
  EXPECT_TRUE(transfer.event_fd()) << "later there is one";
}

TEST(Transfer, Listeners_AreCalledOnceInOrder) {
  Rig rig({}, by_hand());
  const Transfer transfer = rig.copy(0, 4096);
  std::vector<int> told;
  transfer.on_done([&](const Result<MoveStats>& outcome) {
    EXPECT_TRUE(outcome);
    EXPECT_TRUE(transfer.done());
    told.push_back(1);
  });
  transfer.on_done([&](const auto&) { told.push_back(2); });
  EXPECT_TRUE(told.empty());
  EXPECT_TRUE(transfer.wait());
  EXPECT_EQ(told, (std::vector{1, 2}));
  transfer.on_done([&](const auto&) { told.push_back(3); });
  Transfer().on_done([&](const auto&) { told.push_back(4); });
  EXPECT_EQ(told, (std::vector{1, 2, 3, 4}));
}

TEST(Transfer, CoAwait_ReturnsTheOutcome) {
  Rig rig({}, by_hand());
  const Task task = awaiting(rig.copy(0, 4096));
  EXPECT_FALSE(task.handle.done());
  EXPECT_EQ(rig.mover->poll(), 1u);
  ASSERT_TRUE(task.handle.done());
  EXPECT_EQ(task.handle.promise().result->value().bytes, 4_KiB);
  EXPECT_TRUE(awaiting(Transfer()).handle.done());
}

TEST(Transfer, CoAwait_ReturnsErrorAndCancellation) {
  Rig rig({.max_in_flight = 1}, by_hand());
  rig.fake->break_engine(kCpuA, Error{ErrorCode::invalid, "bad"});
  const Task failed = awaiting(rig.copy(0, 4096));
  const Transfer queued = rig.copy(4096, 4096);
  const Task cancelled = awaiting(queued);
  queued.cancel();
  ASSERT_TRUE(cancelled.handle.done());
  EXPECT_EQ(cancelled.handle.promise().result->error().code, ErrorCode::cancelled);
  rig.mover->poll();
  ASSERT_TRUE(failed.handle.done());
  EXPECT_EQ(failed.handle.promise().result->error().message, "bad");
}

TEST(Transfer, CoroutineOfManyInlineMoves_KeepsTheStackFlat) {
  Rig rig({.inside_chance = 1, .log = false}, by_hand());
  const Task task = in_turn(rig, 100'000);
  ASSERT_TRUE(task.handle.done());
  EXPECT_EQ(task.handle.promise().result->value().bytes, Bytes{6'400'000});
}

}  // namespace
}  // namespace headrace
