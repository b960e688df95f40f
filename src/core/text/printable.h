// SPDX-License-Identifier: Apache-2.0
// Makes third-party text printable in a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// In UTF-8, the characters that change the direction of the text after them (UAX 9): U+061C,
// U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069.
inline constexpr std::string_view kTurnDirection[] = {"\u061c", "\u200e", "\u200f", "\u202a",
                                                      "\u202b", "\u202c", "\u202d", "\u202e",
                                                      "\u2066", "\u2067", "\u2068", "\u2069"};

// The text with '?' for control characters, cut if too long.
inline std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string line(text.substr(0, kLongest));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  for (const std::string_view control : kTurnDirection) {
    for (auto at = line.find(control); at != line.npos; at = line.find(control, at)) {
      line.erase(at, control.size() - 1);
      line[at] = '?';
    }
  }
  return text.size() > kLongest ? line + "..." : line;
}

}  // namespace headrace
