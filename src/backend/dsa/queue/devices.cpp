// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/devices.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "core/text/files.h"

namespace headrace::dsa {
namespace {

namespace fs = std::filesystem;

// Parses "0x100" or "256"; empty for any other text.
std::optional<std::uint64_t> parse_number(std::string_view text) {
  const int base = text.starts_with("0x") ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value, base);
  return parsed.ec == std::errc{} && parsed.ptr == end ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> read_count(const fs::path& path) {
  return parse_number(first_line(path));
}

// Returns the entries "prefixN", sorted by N.
std::vector<std::string> numbered(const fs::path& folder, const std::string& prefix) {
  std::vector<std::pair<std::uint64_t, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    const auto number = parse_number(std::string_view(name).substr(prefix.size()));
    if (number) found.emplace_back(*number, name);
  }
  std::ranges::sort(found);
  std::vector<std::string> names;
  for (auto& [number, name] : found) names.push_back(std::move(name));
  return names;
}

// Stores a number of the queue in `value`; false: it is missing, or out of a queue's range.
template <class T>
bool take(const fs::path& path, T& value, std::uint64_t least, std::uint64_t most) {
  const auto number = read_count(path);
  if (!number || *number < least || *number > most) return false;
  value = static_cast<T>(*number);
  return true;
}

// Why a process cannot use something, and the remedy for the first obstacle.
struct Obstacle {
  std::string why;
  std::string remedy;
};

Obstacle obstacle(const fs::path& path, const Device& device, const WorkQueue& queue) {
  const std::string type = first_line(path / "type");
  const std::string state = first_line(path / "state");
  const std::string driver = first_line(path / "driver_name");
  const auto configure = [&](std::string_view option) {
    return fmt::format("accel-config config-wq {}/{} {}", device.name, queue.name, option);
  };
  if (!device.unusable.empty()) return {device.unusable, device.remedy};
  if (type != "user") {
    return {fmt::format("its type is '{}', not user", type), configure("--type=user")};
  }
  if (!driver.empty() && driver != "user") {
    return {fmt::format("its driver_name is '{}', not user", driver),
            configure("--driver-name=user")};
  }
  if (state != "enabled") {
    return {fmt::format("it is {}", state.empty() ? "gone" : state),
            fmt::format("accel-config enable-wq {}/{}", device.name, queue.name)};
  }
  // SPEC 3.13.1: without ATS a write to a missing page may be reported as a success.
  if (read_count(path / "ats_disable").value_or(0) != 0) {
    return {"its ats_disable is 1, with which missing pages go unnoticed",
            configure("--ats-disable=0")};
  }
  if (!queue.operations.has(Opcode::memmove)) {
    return {"its op_config does not allow memmove", configure("--op-config=MASK, with bit 3 set")};
  }
  return {};
}

WorkQueue read_queue(const fs::path& path, const Device& device, const Roots& roots) {
  constexpr std::uint64_t kMostEntries = 1 << 16;
  WorkQueue queue{.name = path.filename(), .file = roots.dev / path.filename()};
  const std::string mode = first_line(path / "mode");
  queue.shared = mode == "shared";
  queue.operations = device.operations;
  if (const auto allowed = parse_opcodes(first_line(path / "op_config"))) {
    queue.operations = queue.operations & *allowed;
  }
  if (!take(path / "max_batch_size", queue.max_batch, 1, kMostEntries)) queue.max_batch = 1;
  const auto sensible = [&] {
    if (mode != "shared" && mode != "dedicated") return false;
    if (!take(path / "size", queue.size, 1, kMostEntries)) return false;
    if (!take(path / "max_transfer_size", queue.max_transfer, 1, std::uint64_t{1} << 32)) {
      return false;
    }
    return !queue.shared || take(path / "threshold", queue.threshold, 1, queue.size);
  };
  Obstacle found{fmt::format("{} does not tell its mode, size or limits", path.string()), ""};
  if (sensible()) found = obstacle(path, device, queue);
  queue.unusable = std::move(found.why);
  queue.remedy = std::move(found.remedy);
  // Sizes in descriptors have 32 bits.
  queue.max_transfer = std::min<std::uint64_t>(queue.max_transfer, 0xffffffff);
  return queue;
}

Device read_device(const fs::path& path, const Roots& roots) {
  Device device{.name = path.filename()};
  const auto version = read_count(path / "version");
  const auto capabilities = read_count(path / "gen_cap");
  const auto operations = parse_opcodes(first_line(path / "op_cap"));
  device.cache_control = (capabilities.value_or(0) >> 2 & 1) != 0;  // SPEC 9.2.2
  device.operations = operations.value_or(Opcodes{});
  const std::string number = device.name.substr(std::string_view("dsa").size());
  for (const std::string& engine : numbered(path, fmt::format("engine{}.", number))) {
    if (read_count(path / engine / "group_id")) ++device.engines;
  }
  const std::string state = first_line(path / "state");
  if (!version || !capabilities || !operations) {
    device.unusable = fmt::format("{} does not tell its version, gen_cap or op_cap", path.string());
  } else if (read_count(path / "pasid_enabled") != 1) {
    device.unusable = "it does not know processes' addresses (pasid_enabled is 0)";
    device.remedy = "turn on VT-d in the BIOS and boot with intel_iommu=on,sm_on";
  } else if (state != "enabled") {
    device.unusable = fmt::format("{} is {}", device.name, state.empty() ? "gone" : state);
    device.remedy = fmt::format("accel-config enable-device {}", device.name);
  }
  for (const std::string& queue : numbered(path, fmt::format("wq{}.", number))) {
    device.queues.push_back(read_queue(path / queue, device, roots));
  }
  return device;
}

fs::path from_environment_or(const char* name, fs::path usual) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::move(usual) : fs::path(value);
}

}  // namespace

Roots Roots::from_environment() {
  const Roots usual;
  return {.sysfs = from_environment_or("HEADRACE_DSA_SYSFS", usual.sysfs),
          .dev = from_environment_or("HEADRACE_DSA_DEV", usual.dev)};
}

std::vector<Device> find_devices(const Roots& roots) {
  std::vector<Device> devices;
  for (const std::string& name : numbered(roots.sysfs, "dsa")) {
    devices.push_back(read_device(roots.sysfs / name, roots));
  }
  return devices;
}

bool is_character_device(const WorkQueue& queue) {
  std::error_code error;
  return fs::is_character_file(queue.file, error);
}

std::optional<Opcodes> parse_opcodes(const std::string& text) {
  Opcodes opcodes;
  std::vector<std::uint64_t> words;  // lowest first
  const bool bitmap = text.find(',') != std::string::npos;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, bitmap ? ',' : ' ');) {
    if (part.empty()) continue;
    if (!part.starts_with("0x")) part = "0x" + part;
    const auto word = parse_number(part);
    if (!word || (bitmap && *word > 0xffffffff)) return std::nullopt;
    words.push_back(*word);
  }
  if (words.empty() || words.size() > (bitmap ? 8U : 4U)) return std::nullopt;
  if (bitmap) std::ranges::reverse(words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (bitmap) {
      opcodes.words()[i / 2] |= words[i] << (i % 2 * 32);
    } else {
      opcodes.words()[i] = words[i];
    }
  }
  return opcodes;
}

}  // namespace headrace::dsa
