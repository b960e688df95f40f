// SPDX-License-Identifier: Apache-2.0
// CPU time of measurements: whether a thread had its CPU, and the CPU cost of a copy.
// Single-thread.
#pragma once

#include <time.h>

#include "headrace/clock.h"
#include "headrace/units.h"

namespace headrace::instruments {

// CPU time since construction, of the calling thread or of all threads of the process. The process
// includes threads of backends and drivers, and the kernel's io_uring workers, which are threads of
// the requesting process (Linux 5.12, "io-wq: fork worker threads from original task"). It also
// includes the process's other work, and excludes most work in interrupts.
class CpuTime {
 public:
  static CpuTime of_thread() { return CpuTime(CLOCK_THREAD_CPUTIME_ID); }
  static CpuTime of_process() { return CpuTime(CLOCK_PROCESS_CPUTIME_ID); }
  double seconds() const { return headrace::seconds(read(clock_) - start_); }
  // Core seconds per 10^9 bytes.
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

// The share of time since construction in which the calling thread had a CPU: below 1 if other work
// ran there, or a quota stopped it. Time taken by a hypervisor is not visible here (noise.h reads
// it as steal in /proc/stat).
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
