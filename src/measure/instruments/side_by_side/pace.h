// SPDX-License-Identifier: Apache-2.0
// How long traffic must pause to reach a share of what it reaches without pauses.
//
// On a large machine ten of fourteen pauses of a fixed list still saturate the memory, and on a
// slow one nearly none does. So the pause is found by bisection on the bandwidth that is really
// reached. Thread-compatible.
#pragma once

#include <functional>
#include <map>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::instruments {

class Pace {
 public:
  // Lets the traffic run with this pause and returns what it reaches, bytes per second.
  using Rate = std::function<Result<double>(Nanoseconds pause)>;

  // The longest pause that is tried: traffic that does nearly nothing.
  static constexpr Nanoseconds kLongest{1 << 17};

  // Zero for a share of 1 and more, kLongest for one that is not reached by then; else within 3 %
  // of the most, or a tenth of the pause where the bandwidth jumps. What was tried before is not
  // tried again. The errors of `rate`.
  Result<Nanoseconds> for_share(double share, const Rate& rate);

 private:
  Result<double> at(Nanoseconds pause, const Rate& rate);

  std::map<Nanoseconds, double> seen_;
};

}  // namespace headrace::instruments
