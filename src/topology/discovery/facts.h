// SPDX-License-Identifier: Apache-2.0
// Facts about a host, without conclusions: from sysfs and procfs, hwloc (about the running system
// or, from XML, about another one), drivers, and the user's variables.
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

struct HwlocFacts {
  std::string version;             // hwloc's version: "2.9.0"
  std::vector<NodeFacts> nodes;    // in ascending order of ids
  std::vector<CacheLevel> caches;  // data and unified
  CpuSet cpus;
  std::string cpu_model;    // "" if unknown
  bool this_system = true;  // false: another machine, through HWLOC_XMLFILE or a similar variable
};

// Reads the XML file, or asks the running system. Errors: absent, invalid: the file; io: hwloc
// failed.
Result<HwlocFacts> read_hwloc(const std::optional<std::filesystem::path>& xml);

struct DsaFacts {
  std::string name;  // "dsa0"
  bool enabled = false;
  unsigned work_queues = 0;      // enabled ones of type user
  std::optional<unsigned> node;  // numa_node
};

struct GpuFacts {
  std::string name;  // "NVIDIA GPU 0000:17:00.0"; from its driver "NVIDIA H200 0000:17:00.0"
  std::string reason;
  std::optional<unsigned> node;       // the nearest host node
  std::optional<unsigned> numa_node;  // the node of its memory, if it is a NUMA node
  std::optional<Bytes> capacity;
  std::string pci;                      // its PCI address
  std::optional<GpuAttributes> driver;  // as reported by its driver
};

// `devices` is /sys/bus/dsa/devices, or a folder in its place.
std::vector<DsaFacts> find_dsa(const std::filesystem::path& devices);
std::vector<GpuFacts> find_gpus(const std::filesystem::path& sysfs);

// Adds the driver's facts. The driver knows GPUs that sysfs does not show, and reports MIG devices
// in place of their GPU. Each GPU has a reason in words. An unusable driver is not an error: it is
// a line in `warnings` if sysfs shows a GPU of its kind.
std::vector<GpuFacts> ask_gpu_driver(std::vector<GpuFacts> found,
                                     const std::filesystem::path& sysfs,
                                     std::vector<std::string>& warnings);

// True if the kernel can move pages between nodes: then it has counters of moved pages.
bool can_migrate_pages(const std::filesystem::path& procfs);

// The storage device of a path.
struct StorageFacts {
  std::string name;    // "vda", or "overlay at /" if no device is visible
  std::string reason;  // how it was found
  std::optional<Bytes> capacity;
  std::string capacity_source;
  std::string path;              // a directory on it
  std::filesystem::path device;  // its disk in sysfs; empty if no device is visible
};

// Finds the device. Other unknown facts are stated in words. Errors: absent, denied: the path
// cannot be examined.
Result<StorageFacts> find_storage(const std::filesystem::path& path,
                                  const std::filesystem::path& sysfs,
                                  const std::filesystem::path& procfs);

// A node's kind set by the user.
struct Override {
  NodeKind kind;
  std::string source;  // "HEADRACE_NODES", "MEMKIND_HBW_NODES"
};

// Kinds by node. HEADRACE_NODES ("8-15=hbm,2=cxl") has priority over MEMKIND_HBW_NODES ("8-15":
// hbm). Empty texts set nothing.
// Errors: invalid: malformed, or two kinds for a node; the message has the format.
Result<std::map<unsigned, Override>> parse_overrides(const std::optional<std::string>& nodes,
                                                     const std::optional<std::string>& hbw_nodes);

}  // namespace headrace
