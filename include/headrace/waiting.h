// SPDX-License-Identifier: Apache-2.0
// Blocking as an argument: a test runs the same code with an event loop of its own. In production,
// Waiting is the futex system call. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "headrace/export.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

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

// Sleeps in the kernel (futex).
Waiting& system_waiting();

}  // namespace HEADRACE_API headrace
