// SPDX-License-Identifier: Apache-2.0
// Containers and text as arguments. Those of nanobind end the process where there is no memory for
// one, since they may not throw; these refuse it, which call() of calls.cpp makes a MemoryError.
// They stand for <nanobind/stl/vector.h>, map.h, string.h and filesystem.h.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/detail/nb_dict.h>
#include <nanobind/stl/detail/nb_list.h>

#include <filesystem>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace headrace::python {

// An argument was refused because there was no memory for it. Guarded by the GIL.
inline constinit bool argument_without_memory = false;

// Returns the result of `take`; false if it ran out of memory.
template <class Take>
bool within_memory(const Take& take) noexcept {
  try {
    return take();
  } catch (const std::bad_alloc&) {
    argument_without_memory = true;
    return false;
  }
}

}  // namespace headrace::python

namespace nanobind::detail {

template <class T>
struct type_caster<std::vector<T>> {
  using Inner = list_caster<std::vector<T>, T>;
  NB_TYPE_CASTER(std::vector<T>, Inner::Name)

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    std::size_t size = 0;
    PyObject* temporary = nullptr;
    PyObject** const items = NB_CALL(seq_get)(source.ptr(), &size, &temporary);
    const object kept = steal(temporary);
    if (items == nullptr) return false;
    return headrace::python::within_memory([&] {
      make_caster<T> each;
      const uint32_t its_flags = flags_for_local_caster<T>(flags);
      value.clear();
      value.reserve(size);
      for (std::size_t i = 0; i < size; ++i) {
        if (!each.from_python(items[i], its_flags, cleanup) || !each.template can_cast<T>()) {
          return false;
        }
        value.push_back(each.operator cast_t<T>());
      }
      return true;
    });
  }
  template <class Source>
  static handle from_cpp(Source&& source, rv_policy policy, cleanup_list* cleanup) noexcept {
    return Inner::from_cpp(std::forward<Source>(source), policy, cleanup);
  }
};

template <class Key, class T>
struct type_caster<std::map<Key, T>> {
  using Map = std::map<Key, T>;
  using Inner = dict_caster<Map, Key, T>;
  NB_TYPE_CASTER(Map, Inner::Name)

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    std::size_t size = 0;
    PyObject* temporary = nullptr;
    PyObject** const items = NB_CALL(mapping_get)(source.ptr(), &size, &temporary);
    const object kept = steal(temporary);
    if (items == nullptr) return false;
    return headrace::python::within_memory([&] {
      make_caster<Key> key;
      make_caster<T> each;
      value.clear();
      for (std::size_t i = 0; i < size; ++i) {
        if (!key.from_python(items[2 * i], flags_for_local_caster<Key>(flags), cleanup) ||
            !key.template can_cast<Key>() ||
            !each.from_python(items[2 * i + 1], flags_for_local_caster<T>(flags), cleanup) ||
            !each.template can_cast<T>()) {
          return false;
        }
        value.emplace(key.operator cast_t<Key>(), each.operator cast_t<T>());
      }
      return true;
    });
  }
  template <class Source>
  static handle from_cpp(Source&& source, rv_policy policy, cleanup_list* cleanup) noexcept {
    return Inner::from_cpp(std::forward<Source>(source), policy, cleanup);
  }
};

template <>
struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    if (PyUnicode_Check(source.ptr()) == 0) return false;
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(source.ptr(), &size);
    if (text == nullptr) {
      headrace::python::argument_without_memory |= PyErr_ExceptionMatches(PyExc_MemoryError) != 0;
      PyErr_Clear();
      return false;
    }
    return headrace::python::within_memory([&] {
      value.assign(text, static_cast<std::size_t>(size));
      return true;
    });
  }
  static handle from_cpp(const std::string& source, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_FromStringAndSize(source.c_str(), static_cast<Py_ssize_t>(source.size()));
  }
};

template <>
struct type_caster<std::filesystem::path> {
  NB_TYPE_CASTER(std::filesystem::path, io_name("str | os.PathLike", "pathlib.Path"))

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    PyObject* bytes = nullptr;
    if (PyUnicode_FSConverter(source.ptr(), &bytes) == 0) {
      headrace::python::argument_without_memory |= PyErr_ExceptionMatches(PyExc_MemoryError) != 0;
      PyErr_Clear();
      return false;
    }
    const object kept = steal(bytes);
    return headrace::python::within_memory([&] {
      value = PyBytes_AS_STRING(bytes);
      return true;
    });
  }
  static handle from_cpp(const std::filesystem::path& source, rv_policy, cleanup_list*) noexcept {
    const object text = steal(PyUnicode_DecodeFSDefaultAndSize(
        source.c_str(), static_cast<Py_ssize_t>(source.native().size())));
    const object module = steal(PyImport_ImportModule("pathlib"));
    if (!text.is_valid() || !module.is_valid()) return {};
    return PyObject_CallMethod(module.ptr(), "Path", "O", text.ptr());
  }
};

}  // namespace nanobind::detail
