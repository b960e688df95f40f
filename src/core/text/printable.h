// SPDX-License-Identifier: Apache-2.0
// Foreign text made fit for a message of one line.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// The text with control characters as '?' and a long end cut off.
inline std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string line(text.substr(0, kLongest));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > kLongest ? line + "..." : line;
}

}  // namespace headrace
