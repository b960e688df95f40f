// SPDX-License-Identifier: Apache-2.0
#include "headrace/clock.h"

#include <time.h>

namespace headrace {
namespace {

class SystemClock final : public Clock {
 public:
  Nanoseconds now() const override {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return std::chrono::seconds{t.tv_sec} + Nanoseconds{t.tv_nsec};
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace headrace
