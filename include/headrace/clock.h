// SPDX-License-Identifier: Apache-2.0
// Time and blocking as arguments: a test runs the same code with its own clock, and the same seed
// gives the same run.
//
// In production, Clock is CLOCK_MONOTONIC and Waiting is the futex system call. Thread-safe.
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

// Waits, always with a bound, until a word changes. The library's own threads sleep otherwise
// (core/mutex.h), also with bounds; they are joined when their work has ended.
class Waiting {
 public:
  virtual ~Waiting() = default;
  // Returns true once `word` no longer holds `seen`, false after `timeout`. Needs a wake_all()
  // after each change.
  virtual bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                    Nanoseconds timeout) = 0;
  // Wakes all threads that wait on `word`. Does not read `word`, which may already be destroyed.
  virtual void wake_all(const std::atomic<std::uint32_t>& word) = 0;
};

// The system's monotonic clock.
const Clock& system_clock();
// Sleeps in the kernel (futex).
Waiting& system_waiting();

}  // namespace HEADRACE_API headrace
