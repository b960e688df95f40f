// SPDX-License-Identifier: Apache-2.0
// The control groups of this process: the folders that hold its limits, and its limit of CPU time.
// Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// Its own group of a controller ("memory", "cpu") and those around it, up to the root. In a
// container the path may be the host's, which is not there: then only the root of the mount is.
struct ControlGroup {
  bool version2 = true;  // else version 1, whose files have other names
  std::string folder;
};
std::vector<ControlGroup> control_groups(const std::filesystem::path& sysfs,
                                         const std::filesystem::path& procfs,
                                         std::string_view controller);

// How many CPUs' time the tightest of them gives (cpu.max; version 1: cpu.cfs_quota_us), and in
// which words: "/sys/fs/cgroup/a/cpu.max: 150000 100000". Nothing without a limit.
struct CpuTimeLimit {
  double cpus = 0;
  std::string text;

  // As many threads as always have a CPU: with one more they stop each other in turn.
  std::size_t threads() const { return cpus < 2 ? 1 : static_cast<std::size_t>(cpus); }
  // "2.5 CPUs' time"
  std::string words() const;
};
std::optional<CpuTimeLimit> cpu_time_limit(const std::filesystem::path& sysfs = "/sys",
                                           const std::filesystem::path& procfs = "/proc");

// How often they have stopped the threads of this process, and of all others in them, for the rest
// of a period (nr_throttled of cpu.stat), added up over the groups that count it. Nothing where
// none does.
std::optional<std::uint64_t> times_throttled(const std::filesystem::path& sysfs = "/sys",
                                             const std::filesystem::path& procfs = "/proc");

}  // namespace headrace
