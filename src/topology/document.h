// The JSON document that a machine and a profile share: text <-> values, and a machine's fields.
// Single-thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "topology/json_reader.h"

namespace headrace {

struct Document {
  std::string text;
  std::string source;  // "preset xeon-max", a path
};

// What Machine::load and Profile::load name.
Result<Document> find_document(const std::string& path_or_preset);

// Any text gives values or invalid with the place.
Result<nlohmann::ordered_json> parse_document(std::string_view text);
// Two spaces of indent and a final newline.
std::string print_document(const nlohmann::ordered_json& document);

nlohmann::ordered_json json_of(const Machine& machine);
// Mistakes go to the reader.
Machine read_machine(const JsonReader& at);

}  // namespace headrace
