// SPDX-License-Identifier: Apache-2.0
// Wait times of a thread that accesses memory all the time, without coordinated omission.
// Single-thread.
//
// An observer makes no accesses while one of them waits: a stall of 10 ms that delays a hundred
// thousand accesses would count once. Here an access that took w also counts the accesses due
// meanwhile, with waits w - i, w - 2i, ... down to i. The interval i is the median access.
//
// A quantile is thus over accesses of a thread at constant pace, as in HdrHistogram (Tene,
// recordValueWithExpectedInterval). Their number depends on the time, not on the observer's luck:
// 10 ms out of 100 ms are a tenth of them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "headrace/histogram.h"

namespace headrace::experiment_migrate {

class Stalls {
 public:
  // Records an access that took `ns`.
  void record(std::uint64_t ns) {
    const std::size_t bucket = Histogram::bucket_of(ns);
    ++counts_[bucket];
    sums_[bucket] += ns;
    most_ = ns > most_ ? ns : most_;
  }
  void clear() { *this = {}; }

  // Accesses made.
  std::uint64_t count() const;
  // The smallest wait that the share `q` of all accesses, due or made, does not exceed; up to 6.25
  // % too large, at least 1. q = 1: the longest wait. nullopt: no access was made.
  std::optional<std::uint64_t> quantile(double q) const;

 private:
  // Per bucket of Histogram: number and total time of the accesses made.
  std::array<std::uint64_t, Histogram::kBuckets> counts_{};
  std::array<std::uint64_t, Histogram::kBuckets> sums_{};
  std::uint64_t most_ = 0;
};

// Makes and records accesses while `goes_on()` returns true. `now`: a clock in ns.
template <class Now, class Access, class GoesOn>
void watch(Stalls& stalls, const Now& now, const Access& access, const GoesOn& goes_on) {
  while (goes_on()) {
    const auto begin = now();
    access();
    stalls.record(static_cast<std::uint64_t>(now() - begin));
  }
}

}  // namespace headrace::experiment_migrate
