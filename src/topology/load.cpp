// Machine::load: from a file, or one of the machines that come with Headrace.

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/fail.h"
#include "headrace/machine.h"
#include "topology/presets.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// Sixteen nodes and their copy rates take 60 KiB; a file of this size is not a machine.
constexpr std::uintmax_t kMaxFile = 64u << 20;

Result<std::string> read_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return fail(ErrorCode::invalid, "'{}' is not a file; give a machine's JSON file",
                path.string());
  }
  if (fs::file_size(path, error) > kMaxFile) {
    return fail(ErrorCode::invalid, "'{}' is too large for a machine's JSON file", path.string());
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail_errno(errno == 0 ? EIO : errno, fmt::format("'{}'", path.string()));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad() || text.fail()) {
    return fail(ErrorCode::io, "'{}' could not be read to its end", path.string());
  }
  return std::move(text).str();
}

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
