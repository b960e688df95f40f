// Machine::load: from a file, or one of the machines that come with Headrace.

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/fail.h"
#include "headrace/machine.h"
#include "topology/files.h"
#include "topology/presets.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

Result<Machine> parse(std::string_view json, const std::string& source) {
  auto machine = Machine::from_json(json);
  if (!machine) {
    return fail(machine.error().code, "{}: {}", source, machine.error().message);
  }
  machine->source = source;
  return machine;
}

}  // namespace

std::vector<std::string> presets() {
  std::vector<std::string> names;
  for (const Preset& preset : embedded_presets()) names.emplace_back(preset.name);
  return names;
}

Result<Machine> Machine::load(const std::string& path_or_preset) {
  const auto embedded = embedded_presets();
  const auto preset = std::ranges::find(embedded, path_or_preset, &Preset::name);
  if (preset != embedded.end()) {
    return parse(preset->json, fmt::format("preset {}", path_or_preset));
  }
  // A name is looked up in the user's own directory of machines too.
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
  HEADRACE_TRY(const std::string text, read_file(path));
  return parse(text, path.string());
}

}  // namespace headrace
