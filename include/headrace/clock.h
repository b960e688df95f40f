// SPDX-License-Identifier: Apache-2.0
// Time and blocking as arguments, so that a test can run the same code with a clock of its own, and
// the same seed gives the same run.
//
// On a real machine Clock is CLOCK_MONOTONIC and Waiting is the futex system call. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "headrace/export.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// Tells the time since an arbitrary start; never goes backwards.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanoseconds now() const = 0;
};

// A clock that moves only when told to: for tests.
class ManualClock final : public Clock {
 public:
  Nanoseconds now() const override { return Nanoseconds{now_.load()}; }
  void advance(Nanoseconds by) { now_.fetch_add(by.count()); }

 private:
  std::atomic<std::int64_t> now_{0};
};

// How a caller waits for a word to change, always with a bound. Threads that the library owns sleep
// otherwise (core/mutex.h), with bounds too, and are joined when what they do has ended.
class Waiting {
 public:
  virtual ~Waiting() = default;
  // Returns once `word` no longer holds `seen` (true) or `timeout` has passed (false). Needs a
  // wake_all() after each change.
  virtual bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                    Nanoseconds timeout) = 0;
  // Wakes all threads that wait on `word`. `word` is not read: it may already be gone.
  virtual void wake_all(const std::atomic<std::uint32_t>& word) = 0;
};

// The monotonic clock of this system.
const Clock& system_clock();
// Sleeping in the kernel (futex).
Waiting& system_waiting();

}  // namespace HEADRACE_API headrace
