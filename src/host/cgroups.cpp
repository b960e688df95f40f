// SPDX-License-Identifier: Apache-2.0
#include "host/cgroups.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

namespace headrace {
namespace {

constexpr const char* kMount = "sys/fs/cgroup";

// True if `controller` is in the list "cpu,cpuacct".
bool lists(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty()) {
    const auto comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == controller) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

std::optional<std::uint64_t> number_of(std::string_view word) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// "quota period" in the format of cpu.max.
std::string quota_and_period(const HostFiles& files, const ControlGroup& group) {
  const std::string folder = group.folder();
  if (group.version2) return files.text(folder + "/cpu.max");
  return files.text(folder + "/cpu.cfs_quota_us") + " " + files.text(folder + "/cpu.cfs_period_us");
}

std::optional<std::uint64_t> limit_of(const HostFiles& files, const ControlGroup& group) {
  const auto limit =
      number_of(files.text(group.folder() + "/" + memory_names(group.version2).most));
  return limit && *limit < kNoLimit ? limit : std::nullopt;
}

}  // namespace

std::vector<ControlGroup> control_groups(const HostFiles& files, std::string_view controller,
                                         std::string_view process) {
  std::vector<ControlGroup> groups;
  std::istringstream lines(files.text(fmt::format("proc/{}/cgroup", process)));
  for (std::string line; std::getline(lines, line);) {
    // "0::/path" is version 2, "4:cpu,cpuacct:/path" version 1.
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !lists(controllers, controller)) continue;
    ControlGroup group{.version2 = controllers.empty(), .mount = kMount, .name = {}};
    if (!group.version2) group.mount += "/" + controllers;
    std::istringstream parts(line.substr(second + 1));
    std::vector<ControlGroup> inwards{group};
    for (std::string part; std::getline(parts, part, '/');) {
      if (part == "..") group.outside = inwards.back().outside = true;
      if (part.empty() || part == "..") continue;
      group.name += (group.name.empty() ? "" : "/") + part;
      inwards.push_back(group);
    }
    groups.insert(groups.end(), inwards.rbegin(), inwards.rend());
  }
  return groups;
}

const MemoryNames& memory_names(bool version2) {
  static constexpr MemoryNames kFirst{"memory.limit_in_bytes",
                                      "memory.limit_in_bytes",
                                      "memory.usage_in_bytes",
                                      "memory.memsw.limit_in_bytes",
                                      "total_active_file",
                                      "total_inactive_file",
                                      "rss"};
  static constexpr MemoryNames kSecond{
      "memory.max",    "memory.high", "memory.current", "memory.swap.max", "active_file",
      "inactive_file", "anon"};
  return version2 ? kSecond : kFirst;
}

std::uint64_t limit_in(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  text.remove_prefix(text.rfind(' ') + 1);
  return std::min(number_of(text).value_or(kNoLimit), kNoLimit);
}

std::optional<MemoryGroup> memory_group(const HostFiles& files, std::string_view process) {
  const auto groups = control_groups(files, "memory", process);
  if (groups.empty()) return std::nullopt;
  // If both versions are mounted, version 1 has the memory.
  const bool version2 = std::ranges::all_of(groups, &ControlGroup::version2);
  MemoryGroup found;
  bool own = true;
  for (const ControlGroup& group : groups) {
    if (group.version2 != version2) continue;
    if (std::exchange(own, false)) {
      found.group = group;
      const auto used = number_of(files.text(group.folder() + "/" + memory_names(version2).used));
      if (used) found.used = Bytes{*used};
    }
    const auto limit = limit_of(files, group);
    if (!limit || (found.limit && found.limit->value <= *limit)) continue;
    found.limit = Bytes{*limit};
    found.limit_file = fmt::format("/{}/{}", group.folder(), memory_names(version2).most);
  }
  return found;
}

std::optional<Bytes> memory_left(const HostFiles& files) {
  std::optional<Bytes> least;
  for (const ControlGroup& group : control_groups(files, "memory")) {
    const MemoryNames& names = memory_names(group.version2);
    const auto limit = limit_of(files, group);
    const auto used = number_of(files.text(group.folder() + "/" + names.used));
    if (!limit || !used) continue;
    const std::string stat = files.text(group.folder() + "/memory.stat");
    const std::uint64_t cache =
        count_after(stat, names.active_file) + count_after(stat, names.inactive_file);
    const std::uint64_t taken = *used - std::min(*used, cache);
    const Bytes left{*limit - std::min(*limit, taken)};
    if (!least || left < *least) least = left;
  }
  return least;
}

std::string CpuTimeLimit::words() const {
  return cpus == 1 ? "1 CPU's time" : fmt::format("{:.3g} CPUs' time", cpus);
}

std::optional<CpuTimeLimit> cpu_time_limit(const HostFiles& files) {
  std::optional<CpuTimeLimit> least;
  for (const ControlGroup& group : control_groups(files, "cpu")) {
    const std::string text = quota_and_period(files, group);
    const auto space = std::min(text.find(' '), text.size());
    const auto quota = number_of(std::string_view(text).substr(0, space));
    const auto period = number_of(std::string_view(text).substr(std::min(space + 1, text.size())));
    // "max 100000", "-1 100000", or no file
    if (quota.value_or(0) == 0 || period.value_or(0) == 0) continue;
    const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
    if (least && least->cpus <= cpus) continue;
    const char* name = group.version2 ? "cpu.max" : "cpu.cfs_quota_us";
    least = {.cpus = cpus, .file = fmt::format("/{}/{}", group.folder(), name), .says = text};
  }
  return least;
}

std::optional<std::uint64_t> times_throttled(const HostFiles& files) {
  std::optional<std::uint64_t> all;
  for (const ControlGroup& group : control_groups(files, "cpu")) {
    const std::string stat = files.text(group.folder() + "/cpu.stat");
    if (stat.find("nr_throttled ") == stat.npos) continue;
    all = all.value_or(0) + count_after(stat, "nr_throttled ");
  }
  return all;
}

}  // namespace headrace
