#include <algorithm>

#include "handles.h"

namespace headrace::python {

bool wait_with_signals(Nanoseconds timeout, const std::function<bool(Nanoseconds)>& wait) {
  const Nanoseconds start = system_clock().now();
  while (true) {
    const Nanoseconds left = timeout - (system_clock().now() - start);
    bool over = false;
    {
      const nb::gil_scoped_release release;
      over = wait(std::clamp(left, Nanoseconds{0}, kSignalInterval));
    }
    if (over) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (left <= Nanoseconds{0}) return false;
  }
}

bool Interruptible::stop() {
  const nb::gil_scoped_acquire acquire;
  if (raised_) return true;
  try {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return !stop_.is_none() && nb::cast<bool>(nb::bool_(stop_()));
  } catch (nb::python_error& error) {
    raised_.emplace(std::move(error));
    return true;
  }
}

void Interruptible::progress(std::size_t done, std::size_t total) {
  const nb::gil_scoped_acquire acquire;
  if (raised_ || progress_.is_none()) return;
  try {
    progress_(done, total);
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
