// SPDX-License-Identifier: Apache-2.0
#include "topology/json_reader.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "core/text/printable.h"

namespace headrace {

using Json = nlohmann::ordered_json;

JsonReader::JsonReader(const Json& value, std::string place, std::optional<Error>& error)
    : value_(value), place_(std::move(place)), error_(error) {}

void JsonReader::wrong(std::string_view name, std::string_view what) const {
  if (error_) return;
  const std::string_view dot = place_.empty() || name.empty() ? "" : ".";
  const std::string at = fmt::format("{}{}{}", place_, dot, name);
  // Keys of the document are part of the location and may contain any bytes.
  error_ = Error{ErrorCode::invalid,
                 fmt::format("{}: {}", at.empty() ? "the document" : printable(at), what)};
}

const Json* JsonReader::field(std::string_view name) const {
  if (!value_.is_object()) {
    wrong("", "must be an object");
    return nullptr;
  }
  const auto found = value_.find(name);
  return found == value_.end() || found->is_null() ? nullptr : &*found;
}

const Json* JsonReader::typed(std::string_view name, Json::value_t type,
                              std::string_view type_name) const {
  const Json* found = field(name);
  if (found == nullptr || found->type() == type) return found;
  wrong(name, fmt::format("must be {}", type_name));
  return nullptr;
}

JsonReader JsonReader::inside(const Json& value, std::string_view name) const {
  return {value, fmt::format("{}{}{}", place_, place_.empty() ? "" : ".", name), error_};
}

std::optional<JsonReader> JsonReader::child(std::string_view name) const {
  const Json* found = field(name);
  return found == nullptr ? std::nullopt : std::optional(inside(*found, name));
}

std::optional<std::uint64_t> JsonReader::optional_integer(std::string_view name,
                                                          std::uint64_t max) const {
  const auto found = child(name);
  return found ? std::optional(found->as_integer(max)) : std::nullopt;
}

std::uint64_t JsonReader::integer(std::string_view name, std::uint64_t max) const {
  const auto found = optional_integer(name, max);
  if (!found) wrong(name, "is missing");
  return found.value_or(0);
}

std::optional<double> JsonReader::optional_number(std::string_view name) const {
  const auto found = child(name);
  return found ? std::optional(found->as_number()) : std::nullopt;
}

double JsonReader::number(std::string_view name) const {
  const auto found = optional_number(name);
  if (!found) wrong(name, "is missing");
  return found.value_or(0);
}

std::string JsonReader::text(std::string_view name) const {
  const Json* found = typed(name, Json::value_t::string, "a string");
  return found == nullptr ? std::string() : found->get<std::string>();
}

std::string JsonReader::required_text(std::string_view name) const {
  if (field(name) == nullptr) wrong(name, "is missing");
  return text(name);
}

std::uint64_t JsonReader::as_integer(std::uint64_t max) const {
  if (!value_.is_number_unsigned() || value_.get<std::uint64_t>() > max) {
    wrong("", fmt::format("must be a whole number from 0 to {}", max));
    return 0;
  }
  return value_.get<std::uint64_t>();
}

double JsonReader::as_number() const {
  const double value = value_.is_number() ? value_.get<double>() : -1;
  if (std::isfinite(value) && value >= 0) return value;
  wrong("", "must be a number from 0 up");
  return 0;
}

bool JsonReader::as_flag() const {
  if (!value_.is_boolean()) wrong("", "must be true or false");
  return value_.is_boolean() && value_.get<bool>();
}

bool JsonReader::is_text() const { return value_.is_string(); }

std::string JsonReader::as_text() const {
  if (value_.is_string()) return value_.get<std::string>();
  wrong("", "must be a string");
  return {};
}

}  // namespace headrace
