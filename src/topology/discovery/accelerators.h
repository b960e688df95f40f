// SPDX-License-Identifier: Apache-2.0
// Devices besides CPUs and disks that copy or hold memory, as found in sysfs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headrace/machine.h"

namespace headrace {

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

}  // namespace headrace
