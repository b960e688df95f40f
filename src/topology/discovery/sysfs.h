// SPDX-License-Identifier: Apache-2.0
// Facts from sysfs and procfs about memory and CPUs, without conclusions.
//
// Any file may be missing or unreadable: its fact is then left out. Thread-compatible.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headrace/machine.h"
#include "host/nodes.h"

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

// The first line of a file without its line end; nothing: it is empty or cannot be read.
std::optional<std::string> read_line(const std::filesystem::path& path);
std::optional<std::uint64_t> read_number(const std::filesystem::path& path);

// The memory node nearest to a device, by its `numa_node`; nothing: unknown.
std::optional<unsigned> read_numa_node(const std::filesystem::path& device);

// Names in a directory, in order of their numbers ("node2" before "node10"); empty: it cannot be
// read.
std::vector<std::string> list_directory(const std::filesystem::path& path);

// The nodes below devices/system/node, in ascending order; empty: no such directory.
std::vector<NodeFacts> read_nodes(const std::filesystem::path& sysfs);
// All online CPUs.
CpuSet read_online_cpus(const std::filesystem::path& sysfs, const std::filesystem::path& procfs);
// Unified and data caches, each once, in the order of their CPUs, the largest level first.
std::vector<CacheLevel> read_caches(const std::filesystem::path& sysfs);
// MemTotal of /proc/meminfo.
std::optional<Bytes> read_total_memory(const std::filesystem::path& procfs);
std::optional<std::string> read_cpu_model(const std::filesystem::path& procfs);
// True in a virtual machine. x86 CPUs have a flag for it. Elsewhere the device tree or firmware's
// names of the machine show it.
bool read_is_virtual(const std::filesystem::path& sysfs, const std::filesystem::path& procfs);
// Maker and name of the computer from firmware: "QEMU Standard PC (Q35 + ICH9, 2009)"; empty:
// unknown.
std::string read_system(const std::filesystem::path& sysfs);

}  // namespace headrace
