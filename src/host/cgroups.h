// SPDX-License-Identifier: Apache-2.0
// Control groups of processes, as they are mounted by systemd: their folders and limits. Versions 1
// and 2 have different names for the same files. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/units.h"
#include "host/files.h"

namespace headrace {

// A process's own group of a controller ("memory", "cpu"), and all enclosing groups up to the root.
// In a container the path may be the host's and not exist there: then only the mount's root is.
struct ControlGroup {
  bool version2 = true;
  std::string mount;  // "sys/fs/cgroup", a name of HostFiles
  std::string name;   // "a/b"; empty: the root
  // The path begins with "/..": the process is outside our namespace of cgroups, and the folder is
  // that of another group, if any.
  bool outside = false;
  std::string folder() const { return name.empty() ? mount : mount + "/" + name; }
};
std::vector<ControlGroup> control_groups(const HostFiles& files, std::string_view controller,
                                         std::string_view process = "self");

// Names of files, and of lines in memory.stat, for memory.
struct MemoryNames {
  const char* most;  // the limit: beyond it the kernel kills
  const char* high;  // the limit beyond which it only reclaims; with version 1 the same
  const char* used;
  const char* swap;  // limits swap, or memory plus swap
  const char* active_file;
  const char* inactive_file;
  const char* anon;  // mapped anonymous memory
};
const MemoryNames& memory_names(bool version2);

// Version 1 reports the largest number of pages for "no limit".
inline constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;
// Parses the last word of the first line as a number: 0 for "oom_kill_disable 0". Other words, as
// "max", mean no limit.
std::uint64_t limit_in(std::string_view text);

// The group that counts this process's memory, and the tightest limit of it and those around it.
struct MemoryGroup {
  ControlGroup group;
  std::optional<Bytes> limit;
  std::string limit_file;  // "/sys/fs/cgroup/a/memory.max"; empty: no limit
  std::optional<Bytes> used;
};
// nullopt: no memory cgroups.
std::optional<MemoryGroup> memory_group(const HostFiles& files, std::string_view process = "self");

// Bytes left under the limits of this process's groups; file pages do not count as used. nullopt:
// no limit.
std::optional<Bytes> memory_left(const HostFiles& files);

// The CPU time of the tightest group in CPUs (cpu.max; version 1: cpu.cfs_quota_us).
struct CpuTimeLimit {
  double cpus = 0;
  std::string file;  // "/sys/fs/cgroup/a/cpu.max"
  std::string says;  // "150000 100000"

  // The number of threads that always have a CPU: with one more, they would be throttled in turn.
  std::size_t threads() const { return cpus < 2 ? 1 : static_cast<std::size_t>(cpus); }
  std::string text() const { return file + ": " + says; }
  // "2.5 CPUs' time"
  std::string words() const;
};
// nullopt: no limit.
std::optional<CpuTimeLimit> cpu_time_limit(const HostFiles& files = HostFiles());

// How often the groups were throttled for the rest of a period (nr_throttled of cpu.stat), this
// process's threads and all others in them; the sum of all groups that count it. Nothing: no group
// counts it.
std::optional<std::uint64_t> times_throttled(const HostFiles& files = HostFiles());

}  // namespace headrace
