// SPDX-License-Identifier: Apache-2.0
// Detects that a program runs worse than before, by the time that its major faults take. Pure.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/units.h"

namespace headrace {

class Guard {
 public:
  // `share`: how much the share of CPU time spent on major faults may grow; 0: no guard. `least`:
  // length of a compared span, in CPU time of the program.
  Guard(double share, Nanoseconds least) : share_(share), least_(least) {}

  // Takes the program's counters and the time of one major fault. True: worse than allowed since
  // the last verdict. Before begin() it only observes.
  bool worse(Nanoseconds cpu, std::uint64_t major_faults, Nanoseconds of_fault);

  // The time so far becomes the base of the comparison, or `otherwise` if the program hardly ran.
  void begin(double otherwise);

  // Shares of the program's CPU time spent on major faults: in the base, and in the last span.
  std::optional<double> before() const { return before_; }
  double now() const { return now_; }

 private:
  const double share_;
  const Nanoseconds least_;
  bool looked_ = false;
  bool ran_ = false;  // enough for a base
  Nanoseconds cpu_{};
  std::uint64_t faults_ = 0;
  std::optional<double> before_;
  double now_ = 0;
};

}  // namespace headrace
