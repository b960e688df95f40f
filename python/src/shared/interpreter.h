// SPDX-License-Identifier: Apache-2.0
// The border to the interpreter: letting go of the GIL and taking it again, telling the interpreter
// something from a thread that has nothing to do with it, and its end.
//
//  1. Nothing of Python runs (a call, a decref, an allocation that may collect garbage, the GIL
//     taken or let go) while a structure of ours is half changed or a lock of ours is held. What is
//     to be dropped leaves the structure first.
//  2. A thread of an engine never waits for the GIL: what it would drop of Python's it leaves to
//     the interpreter (Borrowed). The threads that read user sources do (GilVisit); nothing that
//     has the GIL waits for them, nor do they wait for copies, which may be their own (EndOwner).
//  3. When the interpreter ends, it ends each other thread that wants the GIL where it stands,
//     which the frames of C++ do not survive. Such a thread stops here instead until the process
//     has ended. So the GIL is taken, and what may run Python code or let go of the GIL is called,
//     only by what this header declares. What remains: an allocation may collect garbage, and the
//     finalizers of that run where they like (before Python 3.12).
//
// Thread-safe.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

namespace headrace::python {

namespace nb = nanobind;

// Lets go of the GIL for a scope. Requires: the GIL.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

// The result of `call()`, without the GIL. Requires: the GIL.
template <class Call>
auto without_gil(const Call& call) {
  const GilRelease release;
  return call();
}

// Whether this thread may use Python now. Also true in a program with several interpreters, where
// PyGILState_Check() always says so.
bool holds_gil();

// Takes the GIL for a scope in a thread that has let it go with GilRelease.
class GilAgain {
 public:
  GilAgain();
  ~GilAgain() { PyGILState_Release(state_); }
  GilAgain(const GilAgain&) = delete;
  GilAgain& operator=(const GilAgain&) = delete;

 private:
  PyGILState_STATE state_;
};

// Takes the GIL for a scope in a thread that is not one of Python's, and that no thread waits for
// while it holds the GIL. False: the interpreter ends, and nothing of Python may run. The end of
// the interpreter waits for these scopes, at most 10 s.
class GilVisit {
 public:
  GilVisit();
  ~GilVisit();
  GilVisit(const GilVisit&) = delete;
  GilVisit& operator=(const GilVisit&) = delete;
  explicit operator bool() const { return gil_.has_value(); }
  // Whether this thread is in one, and must not wait for copies, which may wait for it.
  static bool here();
  // Whether the end of the interpreter waited in vain: nothing may wait for copies any more.
  static bool stuck();

 private:
  std::optional<GilAgain> gil_;
};

// str(object), with backslashes for what UTF-8 has not; python_error if that raised. Requires: the
// GIL.
std::string text_of(nb::handle object);
// An exception as one line, "ValueError: no such page". Requires: the GIL.
std::string one_line(const nb::python_error& error);

// An attribute, which may be a property; python_error if there is none. Requires: the GIL.
nb::object attribute_of(nb::handle object, const char* name);

// The result of `callable(*arguments, **keywords)`; python_error if it raised. Requires: the GIL.
nb::object call_python(nb::handle callable, nb::handle arguments, nb::handle keywords = {});
// The same of a function of a module. Requires: the GIL.
nb::object call_function(const char* module, const char* function, nb::handle arguments,
                         nb::handle keywords = {});
// The same of a method without arguments of its own. Requires: the GIL.
nb::object call_method(nb::handle self, const char* method, nb::handle keywords = {});

// __await__ of an object by a function of headrace._asyncio. Requires: the GIL.
inline auto await_by(const char* function) {
  return [function](nb::handle self) {
    return call_method(call_function("headrace._asyncio", function, nb::make_tuple(self)),
                       "__await__");
  };
}

// The buffer of an object, as PyObject_GetBuffer() gives it, and its release: exporters may run
// Python code, and may let go of the GIL as unmapping a file does. One of Python objects is refused
// by InvalidError: bytes put there would be taken for their addresses. Requires: the GIL.
int get_buffer(nb::handle object, Py_buffer& view, int flags);
void release_buffer(Py_buffer& view);

// Runs the handlers of signals that came; python_error if one raised. Requires: the GIL.
void check_signals();

// Adds what has to be done when the interpreter ends and in the child of a fork().
void bind_interpreter(nb::module_& m);

}  // namespace headrace::python
