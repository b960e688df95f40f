// SPDX-License-Identifier: Apache-2.0
// Runs work that may get stuck in the kernel without its caller being stuck too.
//
// A read that a device does not answer cannot be ended: the kernel holds its memory until the
// device lets go, and a mapped page that does not come holds the thread that touched it. So the
// work is done by a thread of its own, and the caller only watches: it asks whether to stop, and
// whether anything still comes. Work that does not end soon after it was told to is left behind:
// its thread waits for the device and then frees what it used. Thread-compatible.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "headrace/clock.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// Nothing has come for so long: the device is stuck. Twice what storage allows a request, so that
// its error, which names file and offset, comes first where the kernel lets go of the memory.
inline constexpr Nanoseconds kStallBound = std::chrono::seconds{60};
// How long work may take to end when it was told to: what is in flight on a healthy device takes
// milliseconds.
inline constexpr Nanoseconds kGrace = std::chrono::seconds{1};
// Between two looks: short for a person who pressed Ctrl-C and long for a processor.
inline constexpr Nanoseconds kWaitStep = std::chrono::milliseconds{50};

// How the caller watches.
struct Supervision {
  const Clock& clock;
  Waiting& waiting;
  // Asked before the work begins and then in every step, only by the calling thread.
  std::function<bool()> stop;
  // Changes whenever something has come.
  std::function<std::uint64_t()> progress;
  std::string source;  // what it comes from, in words
};

// Does `work` and returns its outcome. `told` becomes true when it shall end; it then says
// cancelled. cancelled: stopped. timed_out: nothing came for kStallBound. exhausted: no thread to
// be had. After these the work may still be going on, so it must own all that it uses. What
// `supervision` refers to is used until this returns.
Status supervise(const Supervision& supervision, std::atomic<bool>& told,
                 std::function<Status()> work);

}  // namespace headrace
