// SPDX-License-Identifier: Apache-2.0
// Threads that wait for each other within microseconds, to begin and then again and again: they
// spin, each on a CPU of its own, and give it up where somebody else needs it. Thread-safe.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/waiting/patience.h"
#include "headrace/clock.h"
#include "headrace/units.h"

namespace headrace::instruments {

// All of them begin, or none: one that comes after the others gave up learns it.
class CommonStart {
 public:
  // They wait for each other at most so long. A time of a second or more in which a thread does not
  // look does not count: it had no CPU, or was stopped.
  CommonStart(std::size_t threads, Nanoseconds longest) : missing_(threads), longest_(longest) {}

  // Called once by each; the same to all. False: one of them did not come in time.
  bool begin() {
    std::size_t missing = missing_.load();
    do {
      if (missing == kGivenUp) return false;
    } while (!missing_.compare_exchange_weak(missing, missing - 1));
    AttendedTime waited(system_clock(), std::chrono::seconds{1});
    while ((missing = missing_.load()) != 0) {
      if (missing == kGivenUp) return false;
      // Two may share a CPU.
      sched_yield();
      // Fails where one more came meanwhile.
      if (waited.now() > longest_) missing_.compare_exchange_strong(missing, kGivenUp);
    }
    return true;
  }

 private:
  static constexpr std::size_t kGivenUp = SIZE_MAX;

  std::atomic<std::size_t> missing_;
  const Nanoseconds longest_;
};

// The end of threads that began together and are each timed for themselves: one whose own time is
// over works on until that of all is. So every rate is of a time in which all others worked.
class CommonEnd {
 public:
  explicit CommonEnd(std::size_t threads) : missing_(threads) {}

  // Work of one thread, in the unit of `step`.
  struct Timed {
    double done = 0;  // in its own time
    double seconds = 0;
    double moved = 0;  // until the end of all
  };

  // Called once by each thread. Repeats `step`, which returns how much it did, for `time` and then
  // until the time of all threads is over, but no longer than kLongest: one of them may be stopped.
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

  // Waits until all threads are here; what they did before is then seen by all. Returns whether
  // this is the last meeting, the same to all. It has no bound of its own: requires that all
  // threads began (run_together) and run to it, until it has returned true.
  bool meet() {
    const std::uint64_t round = round_.load();
    if (here_.fetch_add(1) + 1 == threads_) {
      here_.store(0);
      // Not stop_ itself: a thread may ask for an end in the next round before all have left this.
      last_.store(stop_.load());
      round_.store(round + 1);
      return last_.load();
    }
    for (unsigned spins = 0; round_.load() == round; ++spins) {
      if (spins >= kSpins) sched_yield();
    }
    return last_.load();
  }

  // The meeting that the caller comes to next is the last.
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
