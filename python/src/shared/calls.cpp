// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "casters.h"
#include "interpreter.h"

namespace headrace::python {

namespace {

// nanobind calls a function by one of a few ways, for which it has a pointer in the function. Each
// is replaced by a call() of ours, which knows the way it stands for.
constexpr std::size_t kWays = 16;
std::array<vectorcallfunc, kWays> ways{};

constexpr std::string_view kRefusal = "(): incompatible function arguments.";

// The exception that stands for a refusal; the refusal itself where there is none to be made.
void explain(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names) {
  PyObject* kind = nullptr;
  PyObject* what = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&kind, &what, &trace);
  try {
    const nb::object text = nb::steal(PyObject_Str(what));
    if (text.is_valid() &&
        std::string_view(nb::cast<const char*>(text)).find(kRefusal) != std::string_view::npos) {
      nb::list given;
      for (std::size_t i = 0; i < count; ++i) given.append(nb::handle(arguments[i]));
      nb::dict named;
      const auto more = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
      for (Py_ssize_t i = 0; i < more; ++i) {
        named[nb::handle(PyTuple_GET_ITEM(names, i))] =
            nb::handle(arguments[count + static_cast<std::size_t>(i)]);
      }
      const nb::object error = call_function("headrace._argument_errors", "error_of",
                                             nb::make_tuple(nb::handle(function), given, named));
      if (!error.is_none()) {
        Py_XDECREF(kind);
        Py_XDECREF(what);
        Py_XDECREF(trace);
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
        return;
      }
    }
  } catch (nb::python_error&) {
    PyErr_Clear();
  } catch (const std::bad_alloc&) {
    PyErr_Clear();
  }
  PyErr_Restore(kind, what, trace);
}

void after_failure(PyObject* function, PyObject* const* arguments, std::size_t flags,
                   PyObject* names) noexcept {
  const bool no_memory = std::exchange(argument_without_memory, false);
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return;
  if (no_memory) {
    PyErr_NoMemory();
    return;
  }
  // Above the number are bits of Python and of nanobind.
  constexpr std::size_t kNumber = 0xffffffff;
  explain(function, arguments, flags & kNumber, names);
}

template <std::size_t Way>
PyObject* call(PyObject* function, PyObject* const* arguments, std::size_t flags, PyObject* names) {
  PyObject* const result = ways[Way](function, arguments, flags, names);
  if (result == nullptr) [[unlikely]]
    after_failure(function, arguments, flags, names);
  return result;
}

template <std::size_t... Way>
constexpr std::array<vectorcallfunc, sizeof...(Way)> calls_of(std::index_sequence<Way...>) {
  return {call<Way>...};
}
constexpr auto calls = calls_of(std::make_index_sequence<kWays>());

void replace_way(nb::handle function) {
  const Py_ssize_t at = Py_TYPE(function.ptr())->tp_vectorcall_offset;
  char* const place = reinterpret_cast<char*>(function.ptr()) + at;
  vectorcallfunc way = nullptr;
  std::memcpy(&way, place, sizeof way);
  for (std::size_t i = 0; i < kWays; ++i) {
    if (way == calls[i]) return;
    if (ways[i] == nullptr) ways[i] = way;
    if (ways[i] != way) continue;
    std::memcpy(place, &calls[i], sizeof way);
    return;
  }
}

bool is_function(nb::handle thing) {
  const std::string_view type = nb::cast<const char*>(thing.type().attr("__name__"));
  return type == "nb_func" || type == "nb_method";
}

}  // namespace

void explain_refusals(nb::module_& m) {
  for (const nb::handle thing : m.attr("__dict__").attr("values")()) {
    if (is_function(thing)) replace_way(thing);
    if (PyType_Check(thing.ptr()) == 0) continue;
    for (const nb::handle member : thing.attr("__dict__").attr("values")()) {
      if (is_function(member)) replace_way(member);
    }
  }
}

}  // namespace headrace::python
