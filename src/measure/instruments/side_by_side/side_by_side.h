// SPDX-License-Identifier: Apache-2.0
// Runs different loads on several CPUs at once and returns the rate of each; the base of loaded
// latency and interference. Thread-compatible.
//
// All rates are from one window. It begins when every load has worked for a while, and ends while
// all still work, so each load was disturbed by the others all the time.
#pragma once

#include <atomic>
#include <vector>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::instruments {

// The repeated work of one thread.
class Load {
 public:
  virtual ~Load() = default;
  // Some ten microseconds of work; returns its amount in the load's own unit.
  virtual Result<double> step() = 0;
  // The window begins: discard earlier counts.
  virtual void window_begins() {}
};

struct SideBySide {
  // Units per second, in the order of the loads, then of `elsewhere`.
  std::vector<double> rates;
  // Total work of each load, from its first step to its last; without `elsewhere`.
  std::vector<double> done;
  double cpu_share = 1;  // the least of all threads
};

// Runs loads[i] on cpus[i]. The first load keeps the time: the window is `time` plus the rest of
// its last step. `elsewhere`: counters of work outside these threads, each in its own unit.
// Requires: as many loads as CPUs, at least one. Errors: the first one of a load; timed_out: a
// load, or work elsewhere, did not start within two seconds or stood still in the window.
using Counted = const std::atomic<double>*;
Result<SideBySide> side_by_side(const CpuSet& cpus, const std::vector<Load*>& loads,
                                Nanoseconds time, const std::vector<Counted>& elsewhere = {});

}  // namespace headrace::instruments
