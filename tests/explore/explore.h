// SPDX-License-Identifier: Apache-2.0
// Explores the orders in which threads of production code may meet.
//
// A scenario is a function of a Trial: it makes the objects under test, starts threads with
// together(), and states promises with require(). cache_test.cpp has many.
//
// The scenario runs once per seed, half of the seeds with each policy. It must do the same each
// time: no clock, randomness or address from outside. Operations on atomics, mutexes, condition
// variables, futexes, threads and sleeps are the points where another thread may run, in code that
// was compiled for exploring (CMakeLists.txt) and in the scenario.
//
// Failures: a broken require(), a crash, a failed CHECK, a deadlock, threads that poll each other
// for ever, and a thread of together() that only a time-out would wake. The process then ends with
// status 1, after printing the steps and the command that repeats them.
//
// Environment: HEADRACE_EXPLORE_SCHEDULES (per scenario), HEADRACE_EXPLORE_SEED with
// HEADRACE_EXPLORE_POLICY (random or pct; one schedule), HEADRACE_EXPLORE_STEPS (to print).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <source_location>
#include <string_view>

#include "tests/explore/schedule.h"

namespace headrace::explore {

// One schedule, for the scenario. Thread-safe within it.
class Trial {
 public:
  explicit Trial(Schedule& schedule) : schedule_(schedule) {}

  // Runs each in a thread of its own, and waits for all.
  void together(std::initializer_list<std::function<void()>> bodies);
  void require(bool holds, std::string_view promise,
               std::source_location where = std::source_location::current());
  // From now on threads of together() may be woken by time-outs: without a poller, waiting threads
  // poll.
  void allow_timeouts() { timeouts_ = true; }
  // A random number below n, from the schedule's seed.
  std::uint64_t below(std::uint64_t n) { return schedule_.random().below(n); }
  bool has_membarrier() const { return schedule_.settings().membarrier; }

 private:
  Schedule& schedule_;
  bool timeouts_ = false;
};

struct Exploration {
  std::uint64_t schedules = 0;
  std::uint64_t distinct = 0;
  std::uint64_t steps = 0;
  std::uint64_t hash = 0;  // of all orders, in theirs
};

using Scenario = std::function<void(Trial&)>;

// Explores the scenario of the running test, and prints the figures. `share`: of the usual number
// of schedules.
Exploration explore(const Scenario& scenario, double share = 1);

}  // namespace headrace::explore
