// SPDX-License-Identifier: Apache-2.0
// The processor's own clock, for spans far below a microsecond: reading it takes some 10 ns, a call
// of clock_gettime twice that.
//
// On x86 the time-stamp counter, calibrated against CLOCK_MONOTONIC_RAW and used only where the CPU
// says that it runs at one rate in all states (invariant TSC); tools that take its rate for known
// are wrong elsewhere. Otherwise, and on other machines, clock_gettime. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "headrace/units.h"

namespace headrace::instruments {

using ReadClock = std::function<std::uint64_t()>;

// One moment by two clocks.
struct SameMoment {
  std::uint64_t clock;
  std::uint64_t counter;
};

// The counter read between two readings of the clock, the middle of which it is taken for: of many
// tries the one in which they lie closest, so that a thread that was taken off its CPU between two
// of them spoils only that try.
SameMoment read_bracketed(const ReadClock& clock, const ReadClock& counter);

// Nanoseconds of the clock for each tick of the counter, over `time` at least.
double ns_per_tick(const ReadClock& clock, const ReadClock& counter, Nanoseconds time);
// The least difference of two readings in a row.
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
  // Calibrates once per process: 20 ms, each end of them bracketed.
  static const Ticks& instance();

  // Not before what the program does before it, and before what it does after it.
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
  // What two calls of now() cost at least; to be taken off short spans.
  std::uint64_t overhead() const { return overhead_; }

 private:
  Ticks();

  bool by_counter_ = false;
  double ns_per_tick_ = 1;
  std::uint64_t overhead_ = 0;
};

}  // namespace headrace::instruments
