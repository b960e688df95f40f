// SPDX-License-Identifier: Apache-2.0
// Runs work that may hang in the kernel, without hanging its caller.
//
// A read that a device does not answer cannot be cancelled: the kernel holds its memory until the
// device releases it, and a mapped page that does not arrive blocks the thread that touched it. So
// a separate thread does the work. The caller only watches: it asks whether to stop, and whether
// there is progress. Work that does not end soon after a stop request is left behind: its thread
// waits for the device and then frees its memory. Thread-compatible.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "headrace/clock.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "headrace/waiting.h"

namespace headrace {

// Time without progress after which the device counts as stuck. Twice storage's limit for a
// request: storage's own error, which names file and offset, comes first if the kernel releases the
// memory.
inline constexpr Nanoseconds kStallBound = std::chrono::seconds{60};
// Time for work to end after a stop request: requests in flight on a healthy device take
// milliseconds.
inline constexpr Nanoseconds kGrace = std::chrono::seconds{1};
// Interval of checks: short for a person who pressed Ctrl-C, and long for a processor.
inline constexpr Nanoseconds kWaitStep = std::chrono::milliseconds{50};

// How the caller watches the work.
struct Supervision {
  const Clock& clock;
  Waiting& waiting;
  // Called before the work begins and then at every check, only by the calling thread.
  std::function<bool()> stop;
  // Changes with every progress.
  std::function<std::uint64_t()> progress;
  std::string source;  // the source of the data, for people
};

// Runs `work` and returns its outcome. `told` becomes true when the work must end; the work then
// returns cancelled. Uses `supervision` only until it returns. After an error below the work may
// still be running, so it must own everything it uses.
// Errors: cancelled: stopped; timed_out: no progress for kStallBound; exhausted: no thread
// available.
Status supervise(const Supervision& supervision, std::atomic<bool>& told,
                 std::function<Status()> work);

}  // namespace headrace
