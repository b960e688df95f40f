// SPDX-License-Identifier: Apache-2.0
// Policies of turns for exploring, by a seed. Single-thread.
//
// random_walk: at each operation the turn passes, with a probability of the schedule's own, to a
// thread chosen uniformly.
// pct: threads have random priorities and the highest runs; at `depth` - 1 random operations the
// running thread falls below all others. A defect that needs d such points is found with a
// probability of at least 1 / (threads * length^(d-1)) per schedule (Burckhardt et al., ASPLOS
// 2010).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/random.h"
#include "sim/scheduler.h"

namespace headrace::explore {

enum class PolicyKind : std::uint8_t { random_walk, pct };

class Policy final : public sim::TurnPolicy {
 public:
  // `length`: about how many operations a schedule has.
  Policy(PolicyKind kind, std::uint64_t length, Random& random);

  // Before each operation. `meet`: of threads that meet (Schedule::begin_together).
  void count(bool meet) {
    ++operations_;
    step_ += meet;
  }
  // Equal for equal orders.
  std::uint64_t hash() const { return hash_; }
  std::uint64_t steps() const { return step_; }
  // The thread waits for others without sleeping.
  void lower(unsigned thread);

  std::size_t next(std::span<sim::Thread* const> ready) override;
  bool yields(const sim::Thread& running, std::span<sim::Thread* const> ready) override;
  std::size_t notified(std::span<sim::Thread* const> waiting) override;

 private:
  // A thread that has run for this many operations while others could run is polling.
  static constexpr unsigned kLongRun = 300;

  std::int64_t& priority(unsigned thread) { return priorities_[thread % priorities_.size()]; }

  const PolicyKind kind_;
  Random& random_;
  std::uint64_t operations_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t hash_ = 0;
  std::uint64_t stay_ = 1;                     // random walk: the turn passes once in this many
  std::array<std::int64_t, 32> priorities_{};  // pct
  std::vector<std::uint64_t> changes_;         // pct, descending
  std::int64_t lowest_ = 0;
  unsigned run_ = 0;
};

}  // namespace headrace::explore
