// SPDX-License-Identifier: Apache-2.0
// JSON text <-> values: any text gives values or the place of its mistake. Thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "headrace/result.h"

namespace headrace {

// Any text gives values or invalid with the place.
Result<nlohmann::ordered_json> parse_document(std::string_view text);
// Documents of commands other than topo and measure say what they are: "demo", "bench copy".
// invalid: it is one, and no `wanted`, which the `command` writes.
Status check_has_no_kind(const nlohmann::ordered_json& document, std::string_view wanted,
                         std::string_view command);
// Two spaces of indent and a final newline.
std::string print_document(const nlohmann::ordered_json& document);

}  // namespace headrace
