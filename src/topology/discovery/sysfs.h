// SPDX-License-Identifier: Apache-2.0
// What sysfs and procfs say about memory and CPUs; facts only, no conclusions.
//
// Every file may be missing or unreadable: then its fact is left out. Thread-compatible.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headrace/machine.h"

namespace headrace {

// One memory node as the kernel shows it.
struct NodeFacts {
  unsigned id = 0;
  CpuSet cpus;
  std::optional<Bytes> meminfo_total;
  std::optional<Bytes> hwloc_total;
  std::map<NodeId, unsigned> distances;
  std::vector<AccessAttributes> access;
  std::string hwloc_subtype;
  std::optional<unsigned> socket;
  std::string dax_device;
  std::string cxl_region;
  std::string pmem_bus;
  std::optional<unsigned> tier;  // N of the kernel's memory_tierN; smaller is faster
  std::optional<MemorySideCache> side_cache;
};

// The first line of a file without its end; nothing if it is empty or cannot be read.
std::optional<std::string> read_line(const std::filesystem::path& path);
std::optional<std::uint64_t> read_number(const std::filesystem::path& path);

// The memory node nearest to a device, by its `numa_node`; nothing where that is not known.
std::optional<unsigned> read_numa_node(const std::filesystem::path& device);

// Names in a directory, sorted so that numbers count ("node2" before "node10"); empty if it cannot
// be read.
std::vector<std::string> list_directory(const std::filesystem::path& path);
// 12 of ("node12", "node"); nothing if the name is not made so.
std::optional<unsigned> number_after(std::string_view name, std::string_view prefix);

// The nodes below devices/system/node, ascending; empty when there is no such directory.
std::vector<NodeFacts> read_nodes(const std::filesystem::path& sysfs);
// All CPUs that are online.
CpuSet read_online_cpus(const std::filesystem::path& sysfs, const std::filesystem::path& procfs);
// Unified and data caches, each once, largest level first within ascending CPUs.
std::vector<CacheLevel> read_caches(const std::filesystem::path& sysfs);
// MemTotal of /proc/meminfo.
std::optional<Bytes> read_total_memory(const std::filesystem::path& procfs);
std::optional<std::string> read_cpu_model(const std::filesystem::path& procfs);
// Whether it is a virtual machine: x86 CPUs have a flag for it. Elsewhere the device tree or the
// names that firmware gives the machine tell.
bool read_is_virtual(const std::filesystem::path& sysfs, const std::filesystem::path& procfs);
// Maker and name of the computer by its firmware: "QEMU Standard PC (Q35 + ICH9, 2009)"; empty
// where firmware says neither.
std::string read_system(const std::filesystem::path& sysfs);

}  // namespace headrace
