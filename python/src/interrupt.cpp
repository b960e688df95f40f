// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "core/waiting/patience.h"
#include "handles.h"

namespace headrace::python {

namespace {

// Longer than other threads of Python keep the GIL, or a handler of a signal takes: more between
// two looks was a pause of the process.
constexpr Nanoseconds kLongestLook = std::chrono::seconds{2};

}  // namespace

bool wait_with_signals(Nanoseconds timeout, const std::function<bool(Nanoseconds)>& wait) {
  AttendedTime time(system_clock(), kLongestLook);
  Nanoseconds before{0};
  for (Nanoseconds left = timeout;;) {
    const Nanoseconds slice = std::clamp(left, Nanoseconds{0}, kSignalInterval);
    const bool over = without_gil([&] { return wait(slice); });
    release_borrowed();
    if (over) return true;
    check_signals();
    if (left <= Nanoseconds{0}) return false;
    // A slice in which the process was paused counts as one.
    const Nanoseconds now = time.now();
    left -= std::max(now - std::exchange(before, now), slice);
  }
}

}  // namespace headrace::python
