// SPDX-License-Identifier: Apache-2.0
// Who runs next, by a seed. Single-thread.
//
// random_walk: at each operation the turn passes, with a probability of the schedule's own, to a
// thread chosen uniformly.
// pct: threads have random priorities and the highest runs; at `depth` - 1 random operations the
// running thread falls below all others. A defect that needs d such points is found with a
// probability of at least 1 / (threads * length^(d-1)) per schedule (Burckhardt et al., ASPLOS
// 2010).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "headrace/random.h"

namespace headrace::explore {

enum class PolicyKind : std::uint8_t { random_walk, pct };

class Policy {
 public:
  // `length`: about how many operations a schedule has.
  Policy(PolicyKind kind, std::uint64_t length, Random& random);

  // The thread that runs operation number `step`. `runnable`: a bit for each thread, not 0.
  unsigned next(std::uint32_t runnable, unsigned now, std::uint64_t step);
  // The thread waits for others without sleeping.
  void lower(unsigned thread);

 private:
  // A thread that has run for this many operations while others could run is polling.
  static constexpr unsigned kLongRun = 300;

  unsigned any(std::uint32_t runnable);
  unsigned highest(std::uint32_t runnable) const;

  const PolicyKind kind_;
  Random& random_;
  std::uint64_t stay_ = 1;                     // random walk: the turn passes once in this many
  std::array<std::int64_t, 32> priorities_{};  // pct
  std::vector<std::uint64_t> changes_;         // pct, descending
  std::int64_t lowest_ = 0;
  unsigned run_ = 0;
};

}  // namespace headrace::explore
