// SPDX-License-Identifier: Apache-2.0
// Pauses between polls: each is twice as long as the previous one, from a first up to a longest
// pause. A quick event is noticed quickly, and a slow one costs little CPU time. Single-thread.
#pragma once

#include <algorithm>

#include "headrace/units.h"

namespace headrace {

class Backoff {
 public:
  // Requires: 0 < first <= longest.
  constexpr Backoff(Nanoseconds first, Nanoseconds longest)
      : first_(first), longest_(longest), next_(first) {}

  // The length of the pause to make now.
  constexpr Nanoseconds next() {
    const Nanoseconds pause = next_;
    next_ = std::min(next_ * 2, longest_);
    return pause;
  }
  // Call after an event: the next pause is the first one again.
  constexpr void reset() { next_ = first_; }

 private:
  Nanoseconds first_;
  Nanoseconds longest_;
  Nanoseconds next_;
};

}  // namespace headrace
