// SPDX-License-Identifier: Apache-2.0
// Work of several CPUs at once, each of its own kind, and what each got done meanwhile: the ground
// of loaded latency and of interference.
//
// All rates are taken over one window, which begins when every load has been at work for a while
// and ends while all still are, so that each was disturbed by the others all the time: an overlap
// by construction, not by luck. Thread-compatible.
#pragma once

#include <atomic>
#include <vector>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::instruments {

// What one thread does over and over.
class Load {
 public:
  virtual ~Load() = default;
  // Some ten microseconds of work; returns how much it was, in the load's own unit.
  virtual Result<double> step() = 0;
  // The window begins: what was counted before is to be forgotten.
  virtual void window_begins() {}
};

struct SideBySide {
  // Units per second, in the order of the loads; behind them what is at work elsewhere.
  std::vector<double> rates;
  // What each load did in all, from its first step to its last; nothing of what is elsewhere.
  std::vector<double> done;
  double cpu_share = 1;  // the least of the threads'
};

// Runs loads[i] on cpus[i]. The first load keeps the time: the window is `time` and what its last
// step takes longer. timed_out: a load did not get going within two seconds, or stood still in
// the window.
// `elsewhere` is what others count who are at work besides, each in units of its own; these must
// get going and not stand still, as loads must not. The first error of a load. Requires: as many
// loads as CPUs, at least one.
using Counted = const std::atomic<double>*;
Result<SideBySide> side_by_side(const CpuSet& cpus, const std::vector<Load*>& loads,
                                Nanoseconds time, const std::vector<Counted>& elsewhere = {});

}  // namespace headrace::instruments
