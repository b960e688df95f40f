// SPDX-License-Identifier: Apache-2.0
// Threads that meet within microseconds, once to begin or repeatedly. They spin, each on its own
// CPU, and yield it when another thread needs it. Thread-safe.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/waiting/patience.h"
#include "headrace/clock.h"
#include "headrace/units.h"

namespace headrace::instruments {

// A start at which all threads begin, or none: a thread that arrives after the others gave up
// learns it.
class CommonStart {
 public:
  // Threads wait for each other at most `longest`. Gaps of a second or more between two looks of a
  // thread do not count: it had no CPU, or was stopped.
  CommonStart(std::size_t threads, Nanoseconds longest) : missing_(threads), longest_(longest) {}

  // Called once by each thread; all get the same result. False: a thread did not arrive in time.
  bool begin() {
    std::size_t missing = missing_.load();
    do {
      if (missing == kGivenUp) return false;
    } while (!missing_.compare_exchange_weak(missing, missing - 1));
    AttendedTime waited(system_clock(), std::chrono::seconds{1});
    while ((missing = missing_.load()) != 0) {
      if (missing == kGivenUp) return false;
      // Two threads may share a CPU.
      sched_yield();
      // Fails if another thread arrived meanwhile.
      if (waited.now() > longest_) missing_.compare_exchange_strong(missing, kGivenUp);
    }
    return true;
  }

 private:
  static constexpr std::size_t kGivenUp = SIZE_MAX;

  std::atomic<std::size_t> missing_;
  const Nanoseconds longest_;
};

// The end of threads that began together and are timed separately. A thread whose time is over
// works on until the time of all is over. Every rate is thus of a time in which all others worked.
class CommonEnd {
 public:
  explicit CommonEnd(std::size_t threads) : missing_(threads) {}

  // Work of one thread, in units of `step`.
  struct Timed {
    double done = 0;  // in its own time
    double seconds = 0;
    double moved = 0;  // until the end of all
  };

  // Called once by each thread. Repeats `step`, which returns its work, for `time` and then until
  // the time of all threads is over, at most kLongest more, since another thread may be stopped.
  template <class Step>
  Timed work(Nanoseconds time, const Step& step, const Clock& clock = system_clock()) {
    Timed timed;
    const Nanoseconds begin = clock.now();
    Nanoseconds now = begin;
    while (now - begin < time) {
      timed.done += step();
      now = clock.now();
    }
    timed.seconds = seconds(now - begin);
    timed.moved = timed.done;
    missing_.fetch_sub(1);
    while (missing_.load() != 0 && clock.now() - now < kLongest) timed.moved += step();
    return timed;
  }

 private:
  static constexpr Nanoseconds kLongest = std::chrono::seconds{2};

  std::atomic<std::size_t> missing_;
};

class Lockstep {
 public:
  explicit Lockstep(std::size_t threads) : threads_(threads) {}

  // Waits until all threads have arrived; their earlier writes are then visible to all. Returns
  // whether this is the last meeting; all get the same result. The wait has no bound. Requires: all
  // threads began (run_together) and keep meeting until it returns true.
  bool meet() {
    const std::uint64_t round = round_.load();
    if (here_.fetch_add(1) + 1 == threads_) {
      here_.store(0);
      // Not stop_ itself: a thread may call stop() in the next round before all have left this one.
      last_.store(stop_.load());
      round_.store(round + 1);
      return last_.load();
    }
    for (unsigned spins = 0; round_.load() == round; ++spins) {
      if (spins >= kSpins) sched_yield();
    }
    return last_.load();
  }

  // Makes the caller's next meeting the last.
  void stop() { stop_.store(true); }

 private:
  static constexpr unsigned kSpins = 10'000;  // some ten microseconds

  const std::size_t threads_;
  std::atomic<std::size_t> here_{0};
  std::atomic<std::uint64_t> round_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> last_{false};
};

}  // namespace headrace::instruments
