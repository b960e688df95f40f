// SPDX-License-Identifier: Apache-2.0
// The processor's clock, for times far below a microsecond: reading it takes about 10 ns, half as
// long as clock_gettime. Thread-safe.
//
// On x86 it is the time-stamp counter, calibrated against CLOCK_MONOTONIC_RAW. It is used only if
// the CPU reports one rate in all states (invariant TSC); elsewhere tools that assume its rate are
// wrong. Otherwise, and on other machines, it is clock_gettime.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "headrace/units.h"

namespace headrace::instruments {

using ReadClock = std::function<std::uint64_t()>;

// One moment on two clocks.
struct SameMoment {
  std::uint64_t clock;
  std::uint64_t counter;
};

// Reads the counter between two readings of the clock, whose middle is its time. Of many tries,
// takes the one with the closest readings, so that a preempted thread spoils only one try.
SameMoment read_bracketed(const ReadClock& clock, const ReadClock& counter);

// Nanoseconds of the clock per tick of the counter, measured over at least `time`.
double ns_per_tick(const ReadClock& clock, const ReadClock& counter, Nanoseconds time);
// The least difference of two consecutive readings.
template <class Counter>
std::uint64_t least_step(const Counter& counter) {
  std::uint64_t least = UINT64_MAX;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t begin = counter();
    least = std::min(least, counter() - begin);
  }
  return least;
}

class Ticks {
 public:
  // Calibrates once per process: 20 ms, with both ends bracketed.
  static const Ticks& instance();

  // Ordered after all earlier work of the program, and before all later work.
  std::uint64_t now() const;
  Nanoseconds span(std::uint64_t begin, std::uint64_t end) const {
    return Nanoseconds{static_cast<std::int64_t>(static_cast<double>(end - begin) * ns_per_tick_)};
  }
  double nanoseconds(std::uint64_t ticks) const {
    return static_cast<double>(ticks) * ns_per_tick_;
  }
  std::uint64_t ticks(Nanoseconds time) const {
    return static_cast<std::uint64_t>(static_cast<double>(time.count()) / ns_per_tick_);
  }
  bool by_counter() const { return by_counter_; }
  // Least cost of two calls of now(), to subtract from short times.
  std::uint64_t overhead() const { return overhead_; }

 private:
  Ticks();

  bool by_counter_ = false;
  double ns_per_tick_ = 1;
  std::uint64_t overhead_ = 0;
};

}  // namespace headrace::instruments
