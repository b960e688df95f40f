// SPDX-License-Identifier: Apache-2.0
#include "interpreter.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "borrowed.h"
#include "errors.h"

namespace headrace::python {

namespace {

// Written by the thread that ends the interpreter, before it does.
constinit std::atomic<bool> ending{false};
pthread_t ending_thread{};
// GilVisits now, and how long the interpreter's end waits for them.
constinit std::atomic<int> visits{0};
constexpr std::chrono::seconds kVisits{10};
constinit std::atomic<bool> visits_stuck{false};
constinit thread_local bool visiting = false;

// Whether the interpreter is gone for this thread.
bool too_late() {
  return ending.load() && Py_IsInitialized() == 0 &&
         pthread_equal(pthread_self(), ending_thread) == 0;
}

[[noreturn]] void stop_here() {
  for (;;) pause();
}

// Runs `step`, by which the interpreter may end this thread: then it goes no further. Requires: a
// step that calls functions of C only, so that the first frame of C++ on the way is this one.
template <class Step>
auto where_threads_end(Step step) noexcept {
  if (too_late()) stop_here();
  try {
    return step();
  } catch (abi::__forced_unwind&) {
    stop_here();
  }
}

nb::object checked(PyObject* result) {
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

// Whether elements of a format (of the struct module, and PEP 3118) have pointers to objects. Names
// of fields stand between colons.
bool names_objects(const char* format) {
  bool in_name = false;
  for (; format != nullptr && *format != '\0'; ++format) {
    if (*format == ':') in_name = !in_name;
    if (*format == 'O' && !in_name) return true;
  }
  return false;
}

}  // namespace

GilRelease::~GilRelease() {
  where_threads_end([this] { PyEval_RestoreThread(state_); });
}

GilAgain::GilAgain() : state_(where_threads_end([] { return PyGILState_Ensure(); })) {}

GilVisit::GilVisit() {
  visits.fetch_add(1);
  if (!ending.load()) gil_.emplace();
  visiting = true;
}
GilVisit::~GilVisit() {
  gil_.reset();
  visiting = false;
  visits.fetch_sub(1);
}
bool GilVisit::here() { return visiting; }
bool GilVisit::stuck() { return visits_stuck.load(); }

std::string text_of(nb::handle object) {
  const nb::object text = checked(where_threads_end([&] { return PyObject_Str(object.ptr()); }));
  const nb::object utf8 =
      checked(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  return {PyBytes_AS_STRING(utf8.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(utf8.ptr()))};
}

std::string one_line(const nb::python_error& error) {
  std::string text = text_of(attribute_of(error.type(), "__name__"));
  try {
    text += ": " + text_of(error.value());
  } catch (const nb::python_error&) {  // raised by its __str__
  }
  return text.substr(0, text.find('\n'));
}

bool holds_gil() {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_GetUnchecked() != nullptr;
#elif PY_VERSION_HEX >= 0x030C0000
  return _PyThreadState_UncheckedGet() != nullptr;
#else
  PyThreadState* const own = PyGILState_GetThisThreadState();
  return own != nullptr && own == _PyThreadState_UncheckedGet();
#endif
}

nb::object attribute_of(nb::handle object, const char* name) {
  return checked(where_threads_end([&] { return PyObject_GetAttrString(object.ptr(), name); }));
}

nb::object call_python(nb::handle callable, nb::handle arguments, nb::handle keywords) {
  return checked(where_threads_end(
      [&] { return PyObject_Call(callable.ptr(), arguments.ptr(), keywords.ptr()); }));
}

nb::object call_function(const char* module, const char* function, nb::handle arguments,
                         nb::handle keywords) {
  // Finding a module runs Python code too.
  const nb::object found =
      checked(where_threads_end([&] { return PyImport_ImportModule(module); }));
  return call_python(attribute_of(found, function), arguments, keywords);
}

nb::object call_method(nb::handle self, const char* method, nb::handle keywords) {
  return call_python(attribute_of(self, method), nb::make_tuple(), keywords);
}

int get_buffer(nb::handle object, Py_buffer& view, int flags) {
  const auto ask = [&](int all) {
    return where_threads_end([&] { return PyObject_GetBuffer(object.ptr(), &view, all); });
  };
  // A masked array's bytes look like a plain array's: nothing shows which elements are masked.
  if (nb::hasattr(object.type(), "soften_mask")) {
    raise(ErrorCode::invalid,
          "a masked array, whose mask would be ignored; give its .data, or .filled(value)");
  }
  bool objects = false;
  if (ask(flags | PyBUF_ND | PyBUF_FORMAT) == 0) {
    objects = names_objects(view.format);
  } else {
    // Some have bytes and no format of them, as times of NumPy.
    PyErr_Clear();
    if (ask(flags) != 0) return -1;
    const nb::object type = nb::getattr(object, "dtype", nb::none());
    objects = nb::getattr(type, "hasobject", nb::none()).is(nb::bool_(true));
  }
  if (!objects) return 0;
  release_buffer(view);
  raise(ErrorCode::invalid,
        "an array of Python objects, whose bytes are addresses in the interpreter; give one of "
        "numbers");
}

void release_buffer(Py_buffer& view) {
  where_threads_end([&] { PyBuffer_Release(&view); });
}

void check_signals() {
  if (where_threads_end([] { return PyErr_CheckSignals(); }) != 0) throw nb::python_error();
}

void bind_interpreter(nb::module_&) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    ending_thread = pthread_self();
    ending.store(true);
    {
      const GilRelease release;
      const auto end = std::chrono::steady_clock::now() + kVisits;
      while (visits.load() != 0 && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
      visits_stuck.store(visits.load() != 0);
    }
    borrowed_until_exit();
  }));
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") =
                                                          nb::cpp_function([] {
                                                            visits.store(0);
                                                            borrowed_after_fork();
                                                          }));
}

}  // namespace headrace::python
