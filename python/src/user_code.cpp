// SPDX-License-Identifier: Apache-2.0
// Code of the user that the library calls: sources of bytes, and the log of a cache's write-backs.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "handles.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

nb::handle referred(const Borrowed& reference) { return PyTuple_GET_ITEM(reference.exporter(), 0); }

// A Python object with read_into(), as a source. Its bytes come by way of memory of Python's: code
// that keeps the buffer never writes into the cache.
class PythonSource final : public UserSource {
 public:
  PythonSource(nb::handle reader, Bytes size, NodeId node, const std::string& version, Bytes chunk)
      : UserSource(size, node, version, chunk), reader(reference_to(reader)) {}

  Result<Bytes> read(std::uint64_t offset, std::span<std::byte> to) override {
    return in_python<Bytes>([&] {
      const auto length = static_cast<Py_ssize_t>(to.size());
      const nb::object bytes = checked(PyByteArray_FromStringAndSize(nullptr, length));
      std::memset(PyByteArray_AS_STRING(bytes.ptr()), 0, to.size());  // what read_into() leaves out
      const nb::object view = checked(PyMemoryView_FromObject(bytes.ptr()));
      const nb::object got =
          call_python(attribute_of(referred(*reader), "read_into"), nb::make_tuple(offset, view));
      std::uint64_t count = 0;
      if (!nb::try_cast(got, count)) {
        PyErr_SetString(PyExc_TypeError, "read_into() must return the number of bytes");
        throw nb::python_error();
      }
      if (PyByteArray_GET_SIZE(bytes.ptr()) != length) return Bytes{0};  // resized by its keeper
      std::memcpy(to.data(), PyByteArray_AS_STRING(bytes.ptr()),
                  std::min<std::uint64_t>(count, to.size()));
      return Bytes{count};
    });
  }

  Result<std::string> version() override {
    return in_python<std::string>([&] { return version_of(referred(*reader)); });
  }

  static std::string version_of(nb::handle reader) {
    try {
      return text_of(attribute_of(reader, "version"));
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_AttributeError)) return {};
      throw;
    }
  }

  const std::shared_ptr<Borrowed> reader;

 private:
  static nb::object checked(PyObject* made) {
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
  }

  template <class T, class Call>
  static Result<T> in_python(const Call& call) {
    const GilVisit gil;
    if (!gil) return Unexpected(Error{ErrorCode::cancelled, "the interpreter ends"});
    try {
      return call();
    } catch (nb::python_error& error) {
      return Unexpected(Error{ErrorCode::io, "a user source raised " + one_line(error)});
    }
  }
};

struct UserSourceRef : ObjectRef {};

UserSourceRef make_source(nb::handle reader, const Machine& machine) {
  const auto nodes = machine.of_kind(NodeKind::storage);
  if (nodes.empty()) {
    raise(ErrorCode::unsupported,
          "the machine has no storage node, whose engine reads sources; use "
          "Machine.discover(storage=['/'])");
  }
  if (!nb::hasattr(reader, "size") || !nb::hasattr(reader, "read_into")) {
    raise(ErrorCode::invalid, "a source needs `size` and `read_into(offset, buffer)`");
  }
  std::uint64_t size = 0;
  const nb::object given = attribute_of(reader, "size");
  if (!nb::try_cast(given, size) || size > UserSource::kMostBytes.value) {
    raise(ErrorCode::invalid, "the size of a source must be its number of bytes, below 2^63");
  }
  std::uint64_t chunk = 1;
  if (nb::hasattr(reader, "chunk") &&
      (!nb::try_cast(attribute_of(reader, "chunk"), chunk) || chunk == 0)) {
    raise(ErrorCode::invalid, "the chunk of a source must be a number of bytes, at least 1");
  }
  const auto source = std::make_shared<PythonSource>(
      reader, Bytes{size}, nodes.front()->id, PythonSource::version_of(reader), Bytes{chunk});
  return {{source, false, source->reader.get()}};
}

int traverse_source(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const UserSourceRef& ref = *nb::inst_ptr<UserSourceRef>(self);
  return visit_exporter(ref.object, ref.borrowed, 1, visit, arg);
}

PyType_Slot source_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_source)},
                              {0, nullptr}};

}  // namespace

Status call_log(CacheOwner& owner, const Extent& extent, std::span<const std::byte> bytes) {
  // A thread of an engine, or a callback of the Mover, drops the cache.
  if (NoPython::here() || PyGILState_GetThisThreadState() == nullptr) {
    return Unexpected(Error{ErrorCode::unsupported,
                            "before_write_back cannot be called here; call sync() before the cache "
                            "is dropped"});
  }
  const GilAgain gil;
  const nb::error_scope raised;  // the cache may be dropped while an exception goes up
  try {
    ExtentRef changed{owner.seen.find(extent.object->id()), extent.offset, extent.length, false};
    const nb::bytes copy(bytes.data(), bytes.size());
    call_python(referred(*owner.log), nb::make_tuple(nb::cast(std::move(changed)), copy));
    return {};
  } catch (nb::python_error& error) {
    // Ctrl-C ends the program's own call.
    if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
    return Unexpected(Error{ErrorCode::io, "before_write_back raised " + one_line(error)});
  } catch (const std::exception& error) {  // no memory for its arguments
    return Unexpected(
        Error{ErrorCode::io, std::string("before_write_back was not called: ") + error.what()});
  }
}

void bind_user_source(nb::module_& m) {
  nb::class_<UserSourceRef, ObjectRef>(
      m, "UserSource", nb::type_slots(source_slots),
      "Bytes that code of the user gives (an object store, a decompressor) as an object: its "
      "extents can be moved and cached, not written.")
      .def(
          "__init__",
          [](UserSourceRef* self, nb::handle reader, const Machine& machine) {
            new (self) UserSourceRef(make_source(reader, machine));
          },
          "reader"_a, "machine"_a,
          "`reader`: an object with `size`, the number of bytes, and `read_into(offset, buffer)`, "
          "which fills the buffer and returns the number of bytes. At most 16 threads call it at "
          "once. Each call ends in bounded time and does not use the cache. `version` "
          "is optional: if str(reader.version) changes, reads fail, and the new bytes need a new "
          "UserSource. A short read or an exception fails the copy (IoError). `chunk` is optional: "
          "the bytes that read_into() produces at once (a compressed block), which "
          "accesses, reads and plans fetch as a whole.");
}

}  // namespace headrace::python
