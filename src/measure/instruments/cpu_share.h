// SPDX-License-Identifier: Apache-2.0
// CPU time of what is measured: whether a thread had its CPU, and what a copy costs the cores.
// Single-thread.
#pragma once

#include <time.h>

#include "headrace/clock.h"
#include "headrace/units.h"

namespace headrace::instruments {

// The CPU time that was taken since it was made, by the calling thread or by all threads of the
// process: also those of a backend and of a driver, and the kernel's workers of io_uring, which are
// threads of the process that asks (Linux 5.12, "io-wq: fork worker threads from original task").
// What else the process does meanwhile counts too; what interrupts do for it mostly does not.
class CpuTime {
 public:
  static CpuTime of_thread() { return CpuTime(CLOCK_THREAD_CPUTIME_ID); }
  static CpuTime of_process() { return CpuTime(CLOCK_PROCESS_CPUTIME_ID); }
  double seconds() const { return headrace::seconds(read(clock_) - start_); }
  // Seconds of cores for 10^9 bytes.
  double per_gb(double bytes) const { return seconds() / bytes * 1e9; }

  static Nanoseconds read(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return std::chrono::seconds{t.tv_sec} + Nanoseconds{t.tv_nsec};
  }

 private:
  explicit CpuTime(clockid_t clock) : clock_(clock), start_(read(clock)) {}

  const clockid_t clock_;
  const Nanoseconds start_;
};

// The part of the time since it was made in which the calling thread had a CPU: below 1 when
// somebody else ran there, or a quota stopped it. A hypervisor that takes the CPU away is not seen
// here (its steal is in /proc/stat, which noise.h reads).
class CpuShare {
 public:
  double now() const {
    const double wall = seconds(CpuTime::read(CLOCK_MONOTONIC) - wall_);
    return wall <= 0 ? 1 : own_.seconds() / wall;
  }

 private:
  const Nanoseconds wall_ = CpuTime::read(CLOCK_MONOTONIC);
  const CpuTime own_ = CpuTime::of_thread();
};

}  // namespace headrace::instruments
