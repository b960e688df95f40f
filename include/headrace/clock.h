// SPDX-License-Identifier: Apache-2.0
// Time as an argument: a test runs the same code with its own clock, and the same seed gives the
// same run. In production, Clock is CLOCK_MONOTONIC. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "headrace/export.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// Returns the time since an arbitrary start; never decreases.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanoseconds now() const = 0;
};

// A clock that only advance() moves: for tests.
class ManualClock final : public Clock {
 public:
  Nanoseconds now() const override { return Nanoseconds{now_.load()}; }
  void advance(Nanoseconds by) { now_.fetch_add(by.count()); }

 private:
  std::atomic<std::int64_t> now_{0};
};

// The system's monotonic clock.
const Clock& system_clock();

}  // namespace HEADRACE_API headrace
