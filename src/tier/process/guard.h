// SPDX-License-Identifier: Apache-2.0
// Whether a program runs worse than before, by the time that its major faults take: pure.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/units.h"

namespace headrace {

class Guard {
 public:
  // Most by which the share of the program's time that goes into major faults may grow over what it
  // was before; 0: no guard. `least`: what is compared are spans of so much of its CPU time.
  Guard(double share, Nanoseconds least) : share_(share), least_(least) {}

  // Counters of the program, and what one major fault takes. True: since the last verdict, it is
  // worse than it may be. Until begin() it is only looked on.
  bool worse(Nanoseconds cpu, std::uint64_t major_faults, Nanoseconds of_fault);

  // What was so far is what it was before, or `otherwise` where it hardly ran.
  void begin(double otherwise);

  // Shares of the program's CPU time, before and in the last span.
  std::optional<double> before() const { return before_; }
  double now() const { return now_; }

 private:
  const double share_;
  const Nanoseconds least_;
  bool looked_ = false;
  bool ran_ = false;  // enough to tell what it was before
  Nanoseconds cpu_{};
  std::uint64_t faults_ = 0;
  std::optional<double> before_;
  double now_ = 0;
};

}  // namespace headrace
