// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <array>
#include <string>

namespace headrace::python {

namespace {

struct Row {
  ErrorCode code;
  const char* name;
  const char* builtin;  // the exception people already catch; nullptr: none fits
  const char* doc;
};

// The table: ErrorCode -> exception.
constexpr std::array<Row, 8> kRows{{
    {ErrorCode::absent, "AbsentError", "LookupError",
     "Something does not exist: a node, an engine, a file, a column."},
    {ErrorCode::unsupported, "UnsupportedError", "NotImplementedError",
     "The hardware, kernel or file exists but cannot do this."},
    {ErrorCode::denied, "DeniedError", "PermissionError", "The system refuses permission."},
    {ErrorCode::exhausted, "ExhaustedError", "MemoryError",
     "No space is left: memory, budget, queue, disk."},
    {ErrorCode::io, "IoError", "OSError", "A device or file failed or ended early."},
    {ErrorCode::invalid, "InvalidError", "ValueError", "The request is invalid."},
    {ErrorCode::cancelled, "CancelledError", nullptr, "A stop was requested."},
    {ErrorCode::timed_out, "TimedOutError", "TimeoutError",
     "The operation did not finish within its time limit."},
}};

// Owned for the life of the process, as nanobind's own types are.
std::array<PyObject*, kRows.size()> types{};

nb::object new_exception(const char* name, const char* doc, const nb::object& bases,
                         const char* code, int exit_code) {
  nb::dict fields;
  fields["code"] = nb::str(code);
  fields["exit_code"] = nb::int_(exit_code);
  fields["__doc__"] = nb::str(doc);
  const nb::object type = nb::module_::import_("builtins").attr("type");
  return type(nb::str(name), bases, fields);
}

}  // namespace

void bind_errors(nb::module_& m) {
  const nb::module_ builtins = nb::module_::import_("builtins");
  const nb::str module = nb::borrow<nb::str>(m.attr("__name__"));
  const nb::object base =
      new_exception("Error",
                    "An operation of Headrace failed. `code` is the same word as in JSON and C++. "
                    "`exit_code` is the exit code of a command that fails with it.",
                    nb::make_tuple(builtins.attr("Exception")), "", 70);
  base.attr("__module__") = module;
  m.attr("Error") = base;
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    const Row& row = kRows[i];
    const nb::object bases = row.builtin == nullptr
                                 ? nb::object(nb::make_tuple(base))
                                 : nb::object(nb::make_tuple(base, builtins.attr(row.builtin)));
    nb::object type = new_exception(row.name, row.doc, bases,
                                    std::string(to_string(row.code)).c_str(), exit_code(row.code));
    type.attr("__module__") = module;
    m.attr(row.name) = type;
    types[i] = type.release().ptr();
  }
}

void use_errors_of(nb::handle core) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    types[i] = nb::object(core.attr(kRows[i].name)).release().ptr();
  }
}

void raise(ErrorCode code, const std::string& message) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].code != code) continue;
    // A path in it need not be UTF-8.
    const auto size = static_cast<Py_ssize_t>(message.size());
    const auto text = nb::steal(PyUnicode_DecodeUTF8(message.data(), size, "backslashreplace"));
    if (text.is_valid()) PyErr_SetObject(types[i], text.ptr());
  }
  throw nb::python_error();
}

void raise(const Error& error) { raise(error.code, error.message); }

}  // namespace headrace::python
