// SPDX-License-Identifier: Apache-2.0
// JSON text <-> values: any text gives values, or an error with its location. Thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "headrace/result.h"

namespace headrace {

// Parses any text. Errors: invalid, with the location.
Result<nlohmann::ordered_json> parse_document(std::string_view text);
// Prints with two spaces of indent and a final newline.
std::string print_document(const nlohmann::ordered_json& document);

}  // namespace headrace
