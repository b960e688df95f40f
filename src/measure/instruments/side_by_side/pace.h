// SPDX-License-Identifier: Apache-2.0
// Finds the pause with which traffic reaches a share of its full bandwidth, by bisection on the
// measured bandwidth. Thread-compatible.
//
// A fixed list of pauses does not fit all machines: on a large one ten of fourteen still saturate
// the memory, on a slow one almost none does.
#pragma once

#include <functional>
#include <map>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::instruments {

class Pace {
 public:
  // Runs the traffic with this pause and returns its bandwidth in bytes per second.
  using Rate = std::function<Result<double>(Nanoseconds pause)>;

  // The longest pause to try; traffic is then almost zero.
  static constexpr Nanoseconds kLongest{1 << 17};

  // The pause for `share`, to within 3 % of full bandwidth, or to a tenth of the pause where the
  // bandwidth jumps. Zero for a share of 1 or more; kLongest if the share is not reached by then.
  // Known rates are not measured again. Errors: those of `rate`.
  Result<Nanoseconds> for_share(double share, const Rate& rate);

 private:
  Result<double> at(Nanoseconds pause, const Rate& rate);

  std::map<Nanoseconds, double> seen_;
};

}  // namespace headrace::instruments
