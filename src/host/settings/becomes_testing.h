// SPDX-License-Identifier: Apache-2.0
// Waiting for a condition in tests of this folder.
#pragma once

#include <unistd.h>

#include <functional>

namespace headrace {

// Whether `condition` becomes true within 20 s.
inline bool becomes_so(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    ::usleep(10'000);
  }
  return condition();
}

}  // namespace headrace
