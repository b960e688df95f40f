// SPDX-License-Identifier: Apache-2.0
// The bytes of a Python object that has the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "errors.h"
#include "interpreter.h"

namespace headrace::python {

// A Py_buffer for a scope.
class View {
 public:
  View(nb::handle memory, int flags) {
    if (get_buffer(memory, view_, flags) != 0) throw nb::python_error();
  }
  ~View() { release_buffer(view_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

  // The bytes as whole numbers; a rest is left out. InvalidError: they are not aligned.
  template <class T>
  std::span<T> as() const {
    if (reinterpret_cast<std::uintptr_t>(view_.buf) % alignof(T) != 0) {
      raise(ErrorCode::invalid, "the memory is not aligned to its numbers; use headrace.allocate");
    }
    return {static_cast<T*>(view_.buf), size() / sizeof(T)};
  }

 private:
  Py_buffer view_;
};

}  // namespace headrace::python
