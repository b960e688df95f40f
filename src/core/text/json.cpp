// SPDX-License-Identifier: Apache-2.0
#include "core/text/json.h"

#include <algorithm>

#include "core/fail.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

// Converts a byte offset, counted from 1 as in the parser, to "line 3, column 17".
std::string line_and_column(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  const auto line = std::ranges::count(before, '\n') + 1;
  const auto newline = before.rfind('\n');
  const auto column =
      newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
  return fmt::format("line {}, column {}", line, column);
}

// Counts brackets outside strings. The parser keeps them on the heap, but code that recurses
// through the document later must not overflow its stack.
bool too_deep(std::string_view text) {
  constexpr int kMaxDepth = 64;  // a machine needs 4
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Json> parse_document(std::string_view text) {
  if (too_deep(text)) return fail(ErrorCode::invalid, "nested too deeply for a machine");
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    return fail(ErrorCode::invalid, "no JSON at {}; is the file cut off or edited by hand?",
                line_and_column(text, error.byte));
  } catch (const Json::exception&) {  // a number too large for any type
    return fail(ErrorCode::invalid, "a number in the document is out of range");
  }
}

std::string print_document(const Json& document) {
  // Names come from firmware and file systems and need not be UTF-8; a bad byte becomes U+FFFD.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace headrace
