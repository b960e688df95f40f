// SPDX-License-Identifier: Apache-2.0
// The control groups of this process: folders that contain its limits, and its limit of CPU time.
// Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// The process's own group of a controller ("memory", "cpu") and all enclosing groups up to the
// root. In a container the path may be the host's and not exist there: then only the mount's root
// is listed.
struct ControlGroup {
  bool version2 = true;  // false: version 1, with other file names
  std::string folder;
};
std::vector<ControlGroup> control_groups(const std::filesystem::path& sysfs,
                                         const std::filesystem::path& procfs,
                                         std::string_view controller);

// The CPU time of the tightest group in CPUs (cpu.max; version 1: cpu.cfs_quota_us), and its
// source: "/sys/fs/cgroup/a/cpu.max: 150000 100000". Nothing: no limit.
struct CpuTimeLimit {
  double cpus = 0;
  std::string text;

  // The number of threads that always have a CPU: with one more, they would be throttled in turn.
  std::size_t threads() const { return cpus < 2 ? 1 : static_cast<std::size_t>(cpus); }
  // "2.5 CPUs' time"
  std::string words() const;
};
std::optional<CpuTimeLimit> cpu_time_limit(const std::filesystem::path& sysfs = "/sys",
                                           const std::filesystem::path& procfs = "/proc");

// How often the groups were throttled for the rest of a period (nr_throttled of cpu.stat), this
// process's threads and all others in them; the sum of all groups that count it. Nothing: no group
// counts it.
std::optional<std::uint64_t> times_throttled(const std::filesystem::path& sysfs = "/sys",
                                             const std::filesystem::path& procfs = "/proc");

}  // namespace headrace
