// SPDX-License-Identifier: Apache-2.0
// Waits for a set time without looking at a clock: a loop of dependent additions.
//
// Reading the time-stamp counter in order (rdtscp, lfence) waits until all loads before it have
// arrived, so that a thread that throttles itself by it never has two bursts of loads on their way:
// its traffic is thinner than that of a program that computes meanwhile. The loop lets them travel
// on. A turn is as long as the frequency of its CPU makes it: that of one busy CPU is higher than
// that of all. So turns are timed on the CPUs that will wait, all at once. Thread-safe.
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
  // Timed on these CPUs, which all turn at once: 1 ms. The errors of run_together.
  static Result<DelayLoop> timed_on(const CpuSet& cpus);

  // The least time of a turn in several tries: the others were interrupted. `run` turns so many
  // times and returns the time that took, in ns.
  static double ns_per_turn(const std::function<double(std::uint64_t turns)>& run);

  // The mean of these times of a turn, in ns, one for each CPU. Requires: one at least.
  explicit DelayLoop(const std::vector<double>& of_cpus);

  // At least one turn for any time above 0.
  Pause pause(Nanoseconds time) const;
  static void run(std::uint64_t turns);

 private:
  double ns_per_turn_;
};

}  // namespace headrace::instruments
