// Threads that work for a set time at the same time, and whether they had their CPUs.
//
// Thread-safe (no state) except where it says so.
#pragma once

#include <time.h>

#include <atomic>
#include <cstddef>

#include "headrace/clock.h"
#include "headrace/units.h"

namespace headrace {

// The part of the time since it was made in which the calling thread had a CPU: below 1 when
// somebody else ran there, or a quota stopped it. A hypervisor that takes the CPU away is not seen
// here (its steal is in /proc/stat, which noise.h reads). Single-thread.
class CpuShare {
 public:
  CpuShare() : wall_(of(CLOCK_MONOTONIC)), own_(of(CLOCK_THREAD_CPUTIME_ID)) {}
  double now() const {
    const double wall = seconds(of(CLOCK_MONOTONIC) - wall_);
    return wall <= 0 ? 1 : seconds(of(CLOCK_THREAD_CPUTIME_ID) - own_) / wall;
  }

 private:
  static Nanoseconds of(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return std::chrono::seconds{t.tv_sec} + Nanoseconds{t.tv_nsec};
  }

  const Nanoseconds wall_;
  const Nanoseconds own_;
};

// Where the threads of a team meet, spinning, so that they start within a microsecond of each
// other. Once. Thread-safe.
class Start {
 public:
  explicit Start(std::size_t threads) : missing_(threads) {}
  void meet() {
    missing_.fetch_sub(1);
    while (missing_.load() != 0) {
    }
  }

 private:
  std::atomic<std::size_t> missing_;
};

}  // namespace headrace
