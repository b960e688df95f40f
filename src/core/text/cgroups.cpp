// SPDX-License-Identifier: Apache-2.0
#include "core/text/cgroups.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/text/files.h"

namespace headrace {
namespace {

using std::filesystem::path;

// True if `controller` is in the list "cpu,cpuacct".
bool lists(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty()) {
    const auto comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == controller) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

std::optional<double> positive(std::string_view word) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value == 0) return std::nullopt;
  return static_cast<double>(value);
}

// "quota period" in the format of cpu.max; "" if the files cannot be read.
std::string quota_and_period(const ControlGroup& group) {
  if (group.version2) return first_line(group.folder + "/cpu.max");
  return first_line(group.folder + "/cpu.cfs_quota_us") + " " +
         first_line(group.folder + "/cpu.cfs_period_us");
}

}  // namespace

// Strings, since joining paths of several parts frees memory twice in libstdc++ 12 when it runs out
// of memory.
std::vector<ControlGroup> control_groups(const path& sysfs, const path& procfs,
                                         std::string_view controller) {
  std::vector<ControlGroup> groups;
  const std::string mount = sysfs.native() + "/fs/cgroup";
  std::istringstream lines(read_file(procfs / "self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    // "0::/path" is version 2, "4:cpu,cpuacct:/path" version 1.
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !lists(controllers, controller)) continue;
    const std::string root = controllers.empty() ? mount : mount + "/" + controllers;
    std::string group = line.substr(second + 1);
    while (true) {
      groups.push_back({.version2 = controllers.empty(), .folder = root + group});
      if (group.empty()) break;
      group.resize(std::min(group.rfind('/'), group.size() - 1));
    }
  }
  return groups;
}

std::string CpuTimeLimit::words() const {
  return cpus == 1 ? "1 CPU's time" : fmt::format("{:.3g} CPUs' time", cpus);
}

std::optional<CpuTimeLimit> cpu_time_limit(const path& sysfs, const path& procfs) {
  std::optional<CpuTimeLimit> least;
  for (const ControlGroup& group : control_groups(sysfs, procfs, "cpu")) {
    const std::string text = quota_and_period(group);
    const auto space = std::min(text.find(' '), text.size());
    const auto quota = positive(std::string_view(text).substr(0, space));
    const auto period = positive(std::string_view(text).substr(std::min(space + 1, text.size())));
    if (!quota || !period) continue;  // "max 100000", "-1 100000", or no file
    const double cpus = *quota / *period;
    if (least && least->cpus <= cpus) continue;
    const char* name = group.version2 ? "cpu.max" : "cpu.cfs_quota_us";
    least = {.cpus = cpus, .text = fmt::format("{}/{}: {}", group.folder, name, text)};
  }
  return least;
}

std::optional<std::uint64_t> times_throttled(const path& sysfs, const path& procfs) {
  std::optional<std::uint64_t> all;
  for (const ControlGroup& group : control_groups(sysfs, procfs, "cpu")) {
    std::istringstream words(read_file(group.folder + "/cpu.stat").value_or(""));
    std::string name;
    std::uint64_t number = 0;
    while (words >> name >> number) {
      if (name == "nr_throttled") all = all.value_or(0) + number;
    }
  }
  return all;
}

}  // namespace headrace
