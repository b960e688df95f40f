// SPDX-License-Identifier: Apache-2.0
// Waits for a set time without reading a clock: a loop of dependent additions. Thread-safe.
//
// An ordered read of the time-stamp counter (rdtscp, lfence) waits for all earlier loads. A thread
// that paces itself by it never has two bursts of loads in flight, so its traffic is thinner than
// that of a program that computes meanwhile. The loop lets loads stay in flight.
//
// The time of a turn depends on the CPU's frequency, which is higher with one busy CPU than with
// all. So turns are timed on the CPUs that will wait, all at once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headrace/cpus.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::instruments {

// A pause, and the turns of the loop that it takes.
struct Pause {
  Nanoseconds time{0};
  std::uint64_t turns = 0;
};

class DelayLoop {
 public:
  // Times turns on these CPUs, all at once, for 1 ms. Errors: those of run_together.
  static Result<DelayLoop> timed_on(const CpuSet& cpus);

  // The least time of a turn over several tries; slower tries were interrupted. `run` makes `turns`
  // turns and returns the time in ns.
  static double ns_per_turn(const std::function<double(std::uint64_t turns)>& run);

  // Uses the mean of these times per turn in ns, one per CPU. Requires: at least one.
  explicit DelayLoop(const std::vector<double>& of_cpus);

  // At least one turn for any time above 0.
  Pause pause(Nanoseconds time) const;
  static void run(std::uint64_t turns);

 private:
  double ns_per_turn_;
};

}  // namespace headrace::instruments
