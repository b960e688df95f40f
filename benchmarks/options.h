// SPDX-License-Identifier: Apache-2.0
// Options of the programs headrace-bench-*, as a table, and the end of their main(). Single-thread.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/fail.h"

namespace headrace::bench {

struct Option {
  std::string_view name;
  std::string_view value;  // in help; empty: a flag
  std::string_view about;
  std::function<Status(std::string_view)> set;
};

// Options that set a field, which must outlive them.

inline Option flag(std::string_view name, std::string_view about, bool& field) {
  return {name, "", about, [&field](auto) { return field = true, Status{}; }};
}

template <class Text>
Option text(std::string_view name, std::string_view value, std::string_view about, Text& field) {
  return {name, value, about, [&field](std::string_view given) { return field = given, Status{}; }};
}

// A number within bounds. `Field`: the number's type, or an optional one.
template <class T, class Field>
Option number(std::string_view name, std::string_view value, std::string_view about, Field& field,
              T least, T most) {
  return {name, value, about, [=, &field](std::string_view given) -> Status {
            T found{};
            const char* const end = given.data() + given.size();
            const auto [stopped, error] = std::from_chars(given.data(), end, found);
            if (error != std::errc{} || stopped != end || !(found >= least) || !(found <= most)) {
              return fail(ErrorCode::invalid, "{} '{}': give {} to {}", name, given, least, most);
            }
            field = Field(found);
            return {};
          }};
}

// Sets the options. Returns the words behind "--". Errors: invalid: the message has what is
// allowed.
inline Result<std::vector<const char*>> parse(const std::vector<Option>& options,
                                              std::span<const char* const> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--") {
      const auto rest = arguments.subspan(i + 1);
      return std::vector(rest.begin(), rest.end());
    }
    const auto found = std::ranges::find(options, name, &Option::name);
    if (found == options.end()) {
      return fail(ErrorCode::invalid, "no option '{}'; --help lists them", name);
    }
    if (!found->value.empty() && ++i == arguments.size()) {
      return fail(ErrorCode::invalid, "{} needs {}", name, found->value);
    }
    HEADRACE_TRY_STATUS(found->set(arguments[i]));
  }
  return std::vector<const char*>{};
}

inline std::string help(std::string head, const std::vector<Option>& options) {
  for (const Option& each : options) {
    head += fmt::format("  {:<24} {}\n", fmt::format("{} {}", each.name, each.value), each.about);
  }
  return head;
}

// The exit code of main(), after the message of an error.
inline int exit_code(const char* program, const Status& done) {
  if (done) return 0;
  fmt::print(stderr, "{}: {}\n", program, done.error().message);
  return headrace::exit_code(done.error().code);
}

}  // namespace headrace::bench
