// SPDX-License-Identifier: Apache-2.0
#include "document.h"

#include <cmath>
#include <string>

#include "errors.h"

namespace headrace::python {
namespace {

using Json = nlohmann::ordered_json;

// The same depth as in the parser of texts.
constexpr int kMaxDepth = 64;

nb::object object_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean: return nb::bool_(value.get<bool>());
    case Json::value_t::number_unsigned: return nb::int_(value.get<std::uint64_t>());
    case Json::value_t::number_integer: return nb::int_(value.get<std::int64_t>());
    case Json::value_t::string: {
      const std::string& text = value.get_ref<const std::string&>();
      return nb::str(text.data(), text.size());
    }
    case Json::value_t::number_float: {
      const double number = value.get<double>();
      if (std::isfinite(number)) return nb::float_(number);
      return nb::none();  // a text has null there, too
    }
    case Json::value_t::array: {
      nb::list list;
      for (const Json& each : value) list.append(object_of(each));
      return list;
    }
    case Json::value_t::object: {
      nb::dict dict;
      for (const auto& [key, each] : value.items()) dict[key.c_str()] = object_of(each);
      return dict;
    }
    default: return nb::none();
  }
}

std::string unicode_of(nb::handle object) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (text != nullptr) return {text, static_cast<std::size_t>(size)};
  PyErr_Clear();
  raise(ErrorCode::invalid, "a document has a text that is not Unicode");
}

Json number_of(nb::handle object) {
  std::uint64_t number = 0;
  if (nb::try_cast(object, number)) return number;
  std::int64_t below_zero = 0;
  if (nb::try_cast(object, below_zero)) return below_zero;
  raise(ErrorCode::invalid, "a document has a whole number of more than 64 bits");
}

Json json_of(nb::handle object, int depth) {
  if (depth > kMaxDepth) raise(ErrorCode::invalid, "a document is nested too deeply");
  if (object.is_none()) return nullptr;
  if (PyBool_Check(object.ptr())) return nb::cast<bool>(object);
  if (PyLong_Check(object.ptr())) return number_of(object);
  if (PyFloat_Check(object.ptr())) return nb::cast<double>(object);
  if (PyUnicode_Check(object.ptr())) return unicode_of(object);
  if (nb::isinstance<nb::dict>(object)) {
    Json made = Json::object();
    for (const auto& [key, value] : nb::borrow<nb::dict>(object)) {
      if (!PyUnicode_Check(key.ptr())) raise(ErrorCode::invalid, "a document's keys are texts");
      made[unicode_of(key)] = json_of(value, depth + 1);
    }
    return made;
  }
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    Json made = Json::array();
    for (const nb::handle each : object) made.push_back(json_of(each, depth + 1));
    return made;
  }
  raise(ErrorCode::invalid, "a document holds dicts, lists, texts, numbers, booleans and None");
}

}  // namespace

Dict dict_of(const Json& document) { return nb::borrow<Dict>(object_of(document)); }

Json document_of(nb::handle object) { return json_of(object, 0); }

}  // namespace headrace::python
