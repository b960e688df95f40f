// Whether a thread had its CPU while it was measured. Single-thread.
#pragma once

#include <time.h>

#include "headrace/clock.h"
#include "headrace/units.h"

namespace headrace::instruments {

// The part of the time since it was made in which the calling thread had a CPU: below 1 when
// somebody else ran there, or a quota stopped it. A hypervisor that takes the CPU away is not seen
// here (its steal is in /proc/stat, which noise.h reads).
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

}  // namespace headrace::instruments
