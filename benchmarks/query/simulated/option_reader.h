// SPDX-License-Identifier: Apache-2.0
// Reads the options of a simulation from a JSON object. Thread-compatible.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/fail.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::simulated {

// Keeps the first error, and the names it knows.
class OptionReader {
 public:
  explicit OptionReader(const nlohmann::ordered_json& object) : object_(object) {}

  template <class T, class Check>
  void read(const char* name, T& value, const Check& check, std::string_view allowed) {
    known_.insert(name);
    const auto found = object_.find(name);
    if (found == object_.end() || found->is_null()) return;
    try {
      T read = found->get<T>();
      if (check(read)) {
        value = std::move(read);
        return;
      }
    } catch (const nlohmann::ordered_json::exception&) {
      // As a value that is not allowed.
    }
    complain(fmt::format("\"{}\" is {}; give {}", name, found->dump(), allowed));
  }
  void bytes(const char* name, Bytes& value, Bytes least) {
    read(
        name, value.value, [&](std::uint64_t all) { return all >= least.value; },
        fmt::format("a whole number of bytes, at least {}", least.value));
  }
  void count(const char* name, unsigned& value, unsigned most) {
    read(
        name, value, [&](unsigned all) { return all >= 1 && all <= most; },
        fmt::format("a whole number from 1 to {}", most));
  }
  void positive(const char* name, double& value) {
    read(name, value, [](double all) { return std::isfinite(all) && all > 0; }, "a number above 0");
  }
  std::optional<std::size_t> word(const char* name, std::span<const std::string_view> words) {
    std::string text;
    const auto is_word = [&](const std::string& all) {
      return std::ranges::find(words, all) != words.end();
    };
    read(name, text, is_word, fmt::format("{}", fmt::join(words, ", ")));
    const auto found = std::ranges::find(words, text);
    if (found == words.end()) return std::nullopt;
    return static_cast<std::size_t>(found - words.begin());
  }
  const nlohmann::ordered_json* member(const char* name) {
    known_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void complain(std::string why) {
    if (!error_) error_ = Error{ErrorCode::invalid, "options: " + std::move(why)};
  }
  Status end() {
    for (const auto& [name, value] : object_.items()) {
      if (!known_.contains(name)) {
        complain(fmt::format("no option \"{}\"; there are {}", name, fmt::join(known_, ", ")));
      }
    }
    if (error_) return Unexpected(*error_);
    return {};
  }

 private:
  const nlohmann::ordered_json& object_;
  std::set<std::string, std::less<>> known_;
  std::optional<Error> error_;
};

}  // namespace headrace::simulated
