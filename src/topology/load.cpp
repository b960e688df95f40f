// SPDX-License-Identifier: Apache-2.0
// Machine::load and its places: a file, or one of the machines that Headrace ships.

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/fail.h"
#include "core/text/files.h"
#include "headrace/machine.h"
#include "topology/presets.h"
#include "topology/topology.h"

namespace headrace {
std::vector<std::string> presets() {
  std::vector<std::string> names;
  for (const Preset& preset : embedded_presets()) names.emplace_back(preset.name);
  return names;
}

Result<Document> find_document(const std::string& path_or_preset) {
  namespace fs = std::filesystem;
  const auto embedded = embedded_presets();
  const auto preset = std::ranges::find(embedded, path_or_preset, &Preset::name);
  if (preset != embedded.end()) {
    return Document{std::string(preset->json), fmt::format("preset {}", path_or_preset)};
  }
  // A name is also searched in the user's own directory of machines.
  const char* directory = std::getenv("HEADRACE_MACHINES");
  std::error_code error;
  fs::path path = path_or_preset;
  if (!fs::exists(path, error) && directory != nullptr) {
    path = fs::path(directory) / (path_or_preset + ".json");
  }
  if (path_or_preset.empty() || !fs::exists(path, error)) {
    return fail(ErrorCode::absent, "no file and no preset '{}'; presets are {}", path_or_preset,
                fmt::join(presets(), ", "));
  }
  HEADRACE_TRY(std::string text, read_document(path));
  return Document{std::move(text), path.string()};
}

Result<Machine> Machine::load(const std::string& path_or_preset) {
  HEADRACE_TRY(const Document found, find_document(path_or_preset));
  auto machine = from_json(found.text);
  if (!machine) {
    return fail(machine.error().code, "{}: {}", found.source, machine.error().message);
  }
  machine->source = found.source;
  return machine;
}

}  // namespace headrace
