// SPDX-License-Identifier: Apache-2.0
// Memory of a Python object, held by its buffer, or by a reference where it has none, for as long
// as anything of ours uses it. Letting it go may run Python code (the exporter's __del__), so a
// thread of an engine, or a callback of the Mover, leaves that to the interpreter.
//
// Thread-safe, without locks: a fork() finds none held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <variant>

#include "headrace/object.h"

namespace headrace::python {

// A Py_buffer, or something of ours; linked while it waits to be released.
struct HeldView {
  Py_buffer view{};
  std::shared_ptr<void> ours = nullptr;
  HeldView* next = nullptr;
};

struct Borrowed {
  Borrowed(std::unique_ptr<HeldView> v, NodeId node)
      : held(std::move(v)),
        range(std::in_place_type<MemoryRange>,
              std::span(static_cast<std::byte*>(held->view.buf),
                        static_cast<std::size_t>(held->view.len)),
              node) {}
  // Memory of a GPU.
  Borrowed(std::unique_ptr<HeldView> v, NodeId gpu, std::uint64_t address)
      : held(std::move(v)),
        range(std::in_place_type<DeviceRange>, address,
              Bytes{static_cast<std::uint64_t>(held->view.len)}, gpu) {}
  ~Borrowed();
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  PyObject* exporter() const { return held->view.obj; }
  const Object& object() const {
    return std::visit([](const auto& own) -> const Object& { return own; }, range);
  }

  std::unique_ptr<HeldView> held;
  const std::variant<MemoryRange, DeviceRange> range;
};

// A reference to any Python object, which is the item of exporter(), a tuple. Requires: the GIL.
std::shared_ptr<Borrowed> reference_to(nanobind::handle object);

// A scope in which nothing of Python may run, though the thread may have the GIL: a callback of the
// Mover, which other moves wait for.
class NoPython {
 public:
  NoPython();
  ~NoPython();
  NoPython(const NoPython&) = delete;
  NoPython& operator=(const NoPython&) = delete;
  // Whether this thread is in one.
  static bool here();

 private:
  const bool before_;
};

// Leaves it to the interpreter, which drops it in another thread.
void leave_to_interpreter(std::shared_ptr<void> ours);

// Releases what was left to the interpreter. Called where any Python code may run. Requires: the
// GIL.
void release_borrowed();

// The interpreter is about to end: no more calls into it. Requires: the GIL.
void borrowed_until_exit();
// This process is a child: of the parent's other threads none is left. Requires: the GIL.
void borrowed_after_fork();

}  // namespace headrace::python
