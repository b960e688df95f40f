// SPDX-License-Identifier: Apache-2.0
// Devices that copy or hold memory besides CPUs and disks, by the traces they leave in sysfs.
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
  unsigned work_queues = 0;      // of type user, enabled
  std::optional<unsigned> node;  // numa_node
};

struct GpuFacts {
  std::string name;  // "NVIDIA GPU 0000:17:00.0"; by its driver "NVIDIA H200 0000:17:00.0"
  std::string reason;
  std::optional<unsigned> node;       // the host's nearest
  std::optional<unsigned> numa_node;  // which its memory is, if it is one
  std::optional<Bytes> capacity;
  std::string pci;                      // its address
  std::optional<GpuAttributes> driver;  // what its driver says
};

// `devices` is /sys/bus/dsa/devices, or what stands for it.
std::vector<DsaFacts> find_dsa(const std::filesystem::path& devices);
std::vector<GpuFacts> find_gpus(const std::filesystem::path& sysfs);

// The same with what their driver says, which knows GPUs that sysfs does not show, and MIG devices
// in place of the GPU they are part of. Each has the reason in words. A driver that cannot be used
// is no error: it is said in `warnings`, where sysfs shows a GPU of its kind.
std::vector<GpuFacts> ask_gpu_driver(std::vector<GpuFacts> found,
                                     const std::filesystem::path& sysfs,
                                     std::vector<std::string>& warnings);

// Whether the kernel can move pages between nodes, which it tells by counting them.
bool can_migrate_pages(const std::filesystem::path& procfs);

}  // namespace headrace
