// SPDX-License-Identifier: Apache-2.0
// A run of sim::Scheduler (sim/scheduler.h) that a seed and a policy choose. At each operation
// between threads (runtime.cpp) the thread with the turn may lose it.
//
// Time is virtual: each operation takes `step`. If every thread sleeps, the clock jumps to the next
// time-out.
//
// Memory is that of x86: a store weaker than seq_cst may stay in the buffer of its thread while the
// thread goes on (StoreBuffer). Reordering by weaker machines is not modelled.
//
// One schedule at a time. Functions without a comment are for the thread that has the turn.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/random.h"
#include "headrace/units.h"
#include "sim/scheduler.h"
#include "tests/explore/policy.h"

namespace headrace::explore {

enum class Op : std::uint8_t {
  load,
  store,
  exchange,
  fence,
  heavy_fence,
  lock,
  unlock,
  wait,
  wake,
  sleep,
  start,
  join,
  end,
  drain,
  disk,
};
std::string_view to_string(Op op);

// The stores of a thread that other threads do not see yet, oldest first.
class StoreBuffer {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == stores_.size(); }
  void push(volatile void* at, unsigned bytes, std::uint64_t value) {
    stores_[count_++] = {at, bytes, value};
  }
  // The newest store to this address; null: none.
  const std::uint64_t* find(const volatile void* at) const;
  // Whether a store lies in this range.
  bool overlaps(const volatile void* at, std::size_t bytes) const;
  // Makes the oldest store visible.
  void drain_one();
  void drain() {
    while (!empty()) drain_one();
  }

 private:
  struct Store {
    volatile void* at;
    unsigned bytes;
    std::uint64_t value;
  };
  std::array<Store, 8> stores_;
  std::size_t count_ = 0;
};

struct Thread {
  std::shared_ptr<sim::Thread> turns;
  unsigned number = 0;
  bool ended = false;
  Op sleeps_in = Op::wait;
  bool awaited = false;      // its waits must end without a time-out
  Nanoseconds nap{0};        // the longest time that it sleeps now; 0: it does not sleep
  const void* at = nullptr;  // where it is: the return address of its last operation
  StoreBuffer stores;
  std::byte* stack = nullptr;
  std::size_t stack_bytes = 0;
  // The functions that it is in, from outermost, by the addresses that they return to.
  std::array<const void*, 256> calls{};
  std::size_t depth = 0;

  void* (*body)(void*) = nullptr;
  void* argument = nullptr;
  pthread_t handle{};
};

// This thread in the schedule that runs; null: it is in none.
extern thread_local constinit Thread* current;

struct Step {
  std::uint8_t thread;
  Op op;
  const volatile void* object;
  const void* at;
};

struct Settings {
  PolicyKind policy = PolicyKind::random_walk;
  std::uint64_t seed = 1;
  std::uint64_t length = 1000;  // of the longest schedule so far (together_steps), for PCT
  std::uint64_t most_steps = 50'000;
  bool store_buffers = true;
  bool membarrier = true;  // whether the kernel has it
};

class Schedule {
 public:
  static constexpr unsigned kMostThreads = 16;

  explicit Schedule(const Settings& settings);
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // The schedule that runs; null: none.
  static Schedule* running();
  // Runs `body` as thread 0, and all threads that it starts. For a thread outside the schedule.
  // On a failure the process ends with status 1.
  void run(const std::function<void()>& body);

  // Another thread may run now.
  void point(Op op, const volatile void* object, const void* at);
  // Sleeps until a wake() of this address, or until a point in time. False: it was the time.
  bool sleep(Op op, const volatile void* object, Nanoseconds until, const void* at);
  // Wakes at most `most` threads that sleep on the address, chosen at random.
  void wake(const volatile void* object, std::size_t most);
  int start(pthread_t* handle, void* (*body)(void*), void* argument, const void* at);
  Thread* find(pthread_t handle);
  // Makes all stores of all threads visible.
  void drain_all();
  // After a store that stays in its thread's buffer.
  void note_buffered(const Thread& thread) { buffered_ |= 1U << thread.number; }
  // Between these the operations of threads meet; the policy counts them there only.
  void begin_together() { ++together_; }
  void end_together() { --together_; }
  std::uint64_t together_steps() const { return policy_->steps(); }
  // A thread does nothing useful until others have run.
  void yield(const void* at);

  Nanoseconds now() const { return turns_.now(); }
  bool chance(unsigned one_in) { return random_.below(one_in) == 0; }
  Random& random() { return random_; }
  const Settings& settings() const { return settings_; }

  // The steps so far; stays valid after run().
  const std::vector<Step>& steps() const { return steps_; }
  std::uint64_t hash() const { return policy_->hash(); }  // equal for equal orders
  const std::vector<Thread*>& threads() const { return threads_; }
  sim::Scheduler& turns() { return turns_; }

  // Prints why, where each thread is, and the last steps; ends the process.
  [[noreturn]] void fail(const std::string& why);

 private:
  class Quiet;  // is asked when every thread sleeps
  static void* enter(void* thread);
  static void leave(void* thread);
  Thread& add(void* (*body)(void*), void* argument);
  void note(Op op, const volatile void* object, const void* at);
  void drain_some();
  void check_wakeups();
  std::unique_ptr<Policy> make_policy();

  const Settings settings_;
  Random random_;
  Policy* policy_;  // in turns_
  sim::Scheduler turns_;
  Nanoseconds step_;
  std::uint64_t drain_;         // a buffered store becomes visible once in `drain_` operations
  std::uint32_t buffered_ = 0;  // bit i: thread i may have buffered stores
  unsigned together_ = 0;
  std::vector<Step> steps_;
  std::vector<Thread*> threads_;
};

}  // namespace headrace::explore
