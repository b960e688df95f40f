// SPDX-License-Identifier: Apache-2.0
// Reads fields of a JSON document with the location of each error: "nodes[3].kind: ...".
//
// Keeps the first error, and returns defaults after it. So code that reads a document is a list of
// fields with one check at the end. Single-thread.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/result.h"

namespace headrace {

class JsonReader {
 public:
  // Reads `value` at location `place` ("" for the document itself). Both must outlive the reader.
  // Errors are stored in `error`, which all readers of a document share.
  JsonReader(const nlohmann::ordered_json& value, std::string place, std::optional<Error>& error);

  // The field with this name; nullptr if it is missing or null. An error if this is not an object.
  const nlohmann::ordered_json* field(std::string_view name) const;

  std::uint64_t integer(std::string_view name, std::uint64_t max) const;  // required
  std::optional<std::uint64_t> optional_integer(std::string_view name, std::uint64_t max) const;
  std::optional<double> optional_number(std::string_view name) const;  // finite, >= 0
  double number(std::string_view name) const;                          // required
  std::string text(std::string_view name) const;                       // "" if missing
  std::string required_text(std::string_view name) const;

  // Calls each(JsonReader) for every element of this array.
  template <class Each>
  void items(Each each) const {
    if (!value_.is_array()) return wrong("", "must be an array");
    std::size_t index = 0;
    for (const auto& element : value_) {
      each(JsonReader(element, fmt::format("{}[{}]", place_, index++), error_));
    }
  }
  // Calls each(JsonReader) for every element of the array `name`; for none if it is missing.
  template <class Each>
  void elements(std::string_view name, Each each) const {
    if (const auto found = child(name)) found->items(each);
  }
  // Calls each(key, JsonReader) for every member of the object `name`.
  template <class Each>
  void members(std::string_view name, Each each) const {
    const auto* object = typed(name, nlohmann::ordered_json::value_t::object, "an object");
    if (object == nullptr) return;
    for (const auto& [key, value] : object->items()) {
      each(key, inside(value, fmt::format("{}.{}", name, key)));
    }
  }
  // The reader of the field `name`; nothing if it is missing.
  std::optional<JsonReader> child(std::string_view name) const;

  // The value itself.
  std::uint64_t as_integer(std::uint64_t max) const;
  double as_number() const;  // finite, >= 0
  std::string as_text() const;
  bool as_flag() const;
  bool is_text() const;
  bool is_number() const;

  // Stores "place.name: what" unless there is an earlier error.
  void wrong(std::string_view name, std::string_view what) const;
  bool failed() const { return error_.has_value(); }

 private:
  const nlohmann::ordered_json* typed(std::string_view name, nlohmann::ordered_json::value_t type,
                                      std::string_view type_name) const;
  // The reader of a value inside this one.
  JsonReader inside(const nlohmann::ordered_json& value, std::string_view name) const;

  const nlohmann::ordered_json& value_;
  const std::string place_;
  std::optional<Error>& error_;
};

}  // namespace headrace
