// SPDX-License-Identifier: Apache-2.0
// Waits for a set time without looking at a clock: a loop of dependent additions.
//
// Reading the time-stamp counter in order (rdtscp, lfence) waits until all loads before it have
// arrived, so that a thread that throttles itself by it never has two bursts of loads on their way:
// its traffic is thinner than that of a program that computes meanwhile. The loop lets them travel
// on. How long a turn takes is measured once, and changes with the frequency of the CPU: it is what
// slows a thread down and no clock. Thread-safe.
#pragma once

#include <cstdint>

#include "headrace/units.h"

namespace headrace::instruments {

class DelayLoop {
 public:
  // Calibrates once per process: some 2 ms.
  static const DelayLoop& instance();

  // How many turns take this long, roughly; at least one of any time above 0.
  std::uint64_t turns(Nanoseconds time) const;
  static void run(std::uint64_t turns);

 private:
  DelayLoop();

  double ns_per_turn_ = 1;
};

}  // namespace headrace::instruments
