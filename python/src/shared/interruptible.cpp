// SPDX-License-Identifier: Apache-2.0
#include "interruptible.h"

namespace headrace::python {

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
