// SPDX-License-Identifier: Apache-2.0
// How long a thread waits that accesses memory all the time, without coordinated omission.
//
// An observer that makes one access after the other makes none while one of them waits: 10 ms that
// hid a hundred thousand accesses count as one of them. Here they count as what they were: for an
// access that took w, also those that were due meanwhile, of which each would have waited one
// interval less than the one before: w - i, w - 2i, ... down to i. The interval i between accesses
// is the median access. So a quantile is over accesses by a thread that keeps its pace, as
// HdrHistogram has it (Tene, recordValueWithExpectedInterval), and their number is that of the time
// and not of the luck of the observer: 10 ms out of 100 are a tenth of them. Single-thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "headrace/histogram.h"

namespace headrace::experiment_migrate {

class Stalls {
 public:
  // An access that took so many nanoseconds.
  void record(std::uint64_t ns) {
    const std::size_t bucket = Histogram::bucket_of(ns);
    ++counts_[bucket];
    sums_[bucket] += ns;
    most_ = ns > most_ ? ns : most_;
  }
  void clear() { *this = {}; }

  // Accesses made.
  std::uint64_t count() const;
  // The wait that the part `q` of all accesses, those that were due and those that were made, does
  // not exceed, at most 6.25 % above it and 1 at least; q = 1: the longest wait. Nothing where no
  // access was made.
  std::optional<std::uint64_t> quantile(double q) const;

 private:
  // By bucket of Histogram: accesses made, and their time together.
  std::array<std::uint64_t, Histogram::kBuckets> counts_{};
  std::array<std::uint64_t, Histogram::kBuckets> sums_{};
  std::uint64_t most_ = 0;
};

// Makes accesses while `goes_on()` says so, and records each. `now` is a clock in ns.
template <class Now, class Access, class GoesOn>
void watch(Stalls& stalls, const Now& now, const Access& access, const GoesOn& goes_on) {
  while (goes_on()) {
    const auto begin = now();
    access();
    stalls.record(static_cast<std::uint64_t>(now() - begin));
  }
}

}  // namespace headrace::experiment_migrate
