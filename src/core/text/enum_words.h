// SPDX-License-Identifier: Apache-2.0
// The words of an enum whose values are 0, 1, 2, ...: in messages, options and JSON. Thread-safe.
//
//     constexpr EnumWords<Fruit::pear> kFruits{"fruit", {"apple", "pear"}};
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/fail.h"
#include "core/text/printable.h"

namespace headrace {

// `kLast`: the enum's last value.
template <auto kLast>
class EnumWords {
  using Enum = decltype(kLast);
  static constexpr std::size_t kCount = static_cast<std::size_t>(kLast) + 1;

 public:
  // `what`: the enum in messages, "node kind".
  template <std::size_t N>
    requires(N == kCount)
  constexpr EnumWords(const char* what, const char* const (&words)[N]) : what_(what) {
    std::copy(words, words + N, words_.begin());
  }

  // In the order of the values.
  constexpr const std::array<std::string_view, kCount>& all() const { return words_; }

  std::string_view of(Enum value) const {
    CHECK(static_cast<std::size_t>(value) < kCount);
    return words_[static_cast<std::size_t>(value)];
  }
  // Nothing: no value has this word.
  std::optional<Enum> find(std::string_view word) const {
    const auto found = std::ranges::find(words_, word);
    if (found == words_.end()) return std::nullopt;
    return static_cast<Enum>(found - words_.begin());
  }
  // Errors: invalid: no value has this word; the message lists all words.
  Result<Enum> parse(std::string_view word) const {
    if (const auto found = find(word)) return *found;
    std::string known(words_[0]);
    for (std::size_t i = 1; i < kCount; ++i) {
      known.append(i + 1 == kCount ? " or " : ", ").append(words_[i]);
    }
    return fail(ErrorCode::invalid, "no {} '{}'; say {}", what_, printable(word), known);
  }

 private:
  const char* what_;
  std::array<std::string_view, kCount> words_;
};

}  // namespace headrace
