// Devices that copy or hold memory besides CPUs and disks, by the traces they leave in sysfs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace headrace {

struct DsaFacts {
  std::string name;  // "dsa0"
  bool enabled = false;
  unsigned work_queues = 0;      // of type user, enabled
  std::optional<unsigned> node;  // numa_node
};

struct GpuFacts {
  std::string name;  // "NVIDIA GPU 0000:17:00.0"
  std::string reason;
  std::optional<unsigned> node;
};

// `devices` is /sys/bus/dsa/devices, or what stands for it.
std::vector<DsaFacts> find_dsa(const std::filesystem::path& devices);
std::vector<GpuFacts> find_gpus(const std::filesystem::path& sysfs);

// Whether the kernel can move pages between nodes, which it tells by counting them.
bool can_migrate_pages(const std::filesystem::path& procfs);

}  // namespace headrace
