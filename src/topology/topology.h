// Facade of the folder, besides headrace/machine.h: the fields of a machine in a JSON document,
// which it shares with a profile, and what measuring asks a machine. Thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/text/json_reader.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace {

struct Document {
  std::string text;
  std::string source;  // "preset xeon-max", a path
};

// What Machine::load and Profile::load name.
Result<Document> find_document(const std::string& path_or_preset);

nlohmann::ordered_json json_of(const Machine& machine);
// Mistakes go to the reader.
Machine read_machine(const JsonReader& at);

// What a measurement by threads on these CPUs has to get past: their last-level caches, each
// counted once. 32 MiB, larger than most cores' share, where the machine does not tell.
Bytes cache_to_pass(const Machine& machine, const CpuSet& cpus);

}  // namespace headrace
