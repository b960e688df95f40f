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
    bool over = false;
    {
      const GilRelease release;
      over = wait(slice);
    }
    release_borrowed();
    if (over) return true;
    check_signals();
    if (left <= Nanoseconds{0}) return false;
    // A slice in which the process was paused counts as one.
    const Nanoseconds now = time.now();
    left -= std::max(now - std::exchange(before, now), slice);
  }
}

bool Interruptible::stop() {
  const GilAgain again;
  if (raised_) return true;
  try {
    check_signals();
    if (stop_.is_none()) return false;
    return nb::cast<bool>(nb::bool_(call_python(stop_, nb::make_tuple())));
  } catch (nb::python_error& error) {
    raised_.emplace(std::move(error));
    return true;
  }
}

void Interruptible::progress(std::size_t done, std::size_t total) {
  const GilAgain again;
  if (raised_ || progress_.is_none()) return;
  try {
    call_python(progress_, nb::make_tuple(done, total));
  } catch (nb::python_error& error) {
    raised_.emplace(std::move(error));
  }
}

void Interruptible::rethrow() {
  if (!raised_) return;
  nb::python_error error = std::move(*raised_);
  raised_.reset();
  throw error;
}

}  // namespace headrace::python
