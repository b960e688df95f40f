// SPDX-License-Identifier: Apache-2.0
// Pauses between two looks for something that comes soon or late: each twice as long as the one
// before, from a first up to a longest, so that what is quick is found quickly and what is slow
// costs little CPU time. Single-thread.
#pragma once

#include <algorithm>

#include "headrace/units.h"

namespace headrace {

class Backoff {
 public:
  // Requires: 0 < first <= longest.
  constexpr Backoff(Nanoseconds first, Nanoseconds longest)
      : first_(first), longest_(longest), next_(first) {}

  // The pause to make now.
  constexpr Nanoseconds next() {
    const Nanoseconds pause = next_;
    next_ = std::min(next_ * 2, longest_);
    return pause;
  }
  // Something came: the next pause is the first again.
  constexpr void reset() { next_ = first_; }

 private:
  Nanoseconds first_;
  Nanoseconds longest_;
  Nanoseconds next_;
};

}  // namespace headrace
