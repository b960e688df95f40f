// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "backend/cuda/cuda.h"
#include "core/fail.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// PCI classes that count as GPUs, by vendor (PCI Code and ID Assignment Specification). Graphics of
// management controllers, virtual machines and CPUs are excluded: they have no usable memory.
struct GpuVendor {
  std::uint64_t vendor;
  std::string_view name;
  std::array<std::uint64_t, 2> classes;
};
constexpr std::array<GpuVendor, 3> kGpuVendors = {{
    {0x10de, "NVIDIA", {0x0302, 0x0300}},  // 3D controller (data centre), VGA (workstation)
    {0x1002, "AMD", {0x1200, 0x0380}},     // processing accelerator, other display (Instinct)
    {0x8086, "Intel", {0x0380, 0x0302}},   // other display (Data Center GPU Max)
}};

const GpuVendor* gpu_vendor(std::uint64_t vendor, std::uint64_t pci_class) {
  for (const GpuVendor& each : kGpuVendors) {
    if (each.vendor == vendor && (each.classes[0] == pci_class || each.classes[1] == pci_class)) {
      return &each;
    }
  }
  return nullptr;
}

GpuParadigm paradigm_of(const cuda::Device& device) {
  if (device.pageable_access) {
    return device.host_page_tables ? GpuParadigm::ats : GpuParadigm::hmm;
  }
  return device.concurrent_managed ? GpuParadigm::managed : GpuParadigm::limited;
}

GpuFacts facts_of(const cuda::Device& device, int version, const fs::path& sysfs) {
  GpuFacts gpu{.name = fmt::format("{} {}", device.name, device.pci),
               .node = device.host_node,
               .numa_node = device.numa_node,
               .capacity = device.capacity,
               .pci = device.pci,
               .driver = GpuAttributes{.pci = device.pci,
                                       .uuid = device.uuid,
                                       .paradigm = paradigm_of(device),
                                       .copy_engines = device.copy_engines,
                                       .emulated = device.emulated}};
  std::string_view who = "the driver";
  if (!gpu.node) {
    gpu.node = read_numa_node(sysfs / "bus/pci/devices" / device.pci);
    who = "sysfs";
  }
  gpu.reason =
      fmt::format("CUDA {}, {}", cuda::version_text(version), to_string(gpu.driver->paradigm));
  if (gpu.node) gpu.reason += fmt::format(", at node {} ({})", *gpu.node, who);
  if (device.emulated) gpu.reason += "; emulated";
  return gpu;
}

}  // namespace

std::vector<DsaFacts> find_dsa(const fs::path& devices) {
  std::vector<DsaFacts> found;
  for (const std::string& name : list_directory(devices)) {
    const auto number = number_after(name, "dsa");
    if (!number) continue;
    DsaFacts dsa{.name = name,
                 .enabled = read_line(devices / name / "state") == "enabled",
                 .node = read_numa_node(devices / name)};
    for (const std::string& queue : list_directory(devices / name)) {
      if (!queue.starts_with(fmt::format("wq{}.", *number))) continue;
      const fs::path path = devices / name / queue;
      if (read_line(path / "state") == "enabled" && read_line(path / "type") == "user") {
        ++dsa.work_queues;
      }
    }
    found.push_back(std::move(dsa));
  }
  return found;
}

std::vector<GpuFacts> find_gpus(const fs::path& sysfs) {
  const fs::path devices = sysfs / "bus/pci/devices";
  std::vector<GpuFacts> found;
  for (const std::string& address : list_directory(devices)) {
    const auto vendor = read_number(devices / address / "vendor");
    const auto code = read_number(devices / address / "class");
    if (!vendor || !code) continue;
    // The lowest byte is the programming interface.
    const GpuVendor* maker = gpu_vendor(*vendor, *code >> 8);
    if (maker == nullptr) continue;
    found.push_back({.name = fmt::format("{} GPU {}", maker->name, address),
                     .reason = fmt::format("PCI device {}, class {:#06x}, vendor {:#06x}; how much "
                                           "memory it has only its driver can tell",
                                           address, *code >> 8, *vendor),
                     .node = read_numa_node(devices / address),
                     .pci = address});
  }
  return found;
}

std::vector<GpuFacts> ask_gpu_driver(std::vector<GpuFacts> found, const fs::path& sysfs,
                                     std::vector<std::string>& warnings) {
  const auto driver = cuda::driver();
  const auto devices = driver ? cuda::find_devices(**driver)
                              : Result<std::vector<cuda::Device>>(Unexpected(driver.error()));
  if (!devices) {
    const bool expected = std::ranges::any_of(
        found, [](const GpuFacts& gpu) { return gpu.name.starts_with(kGpuVendors[0].name); });
    if (expected) warnings.push_back("GPUs: " + devices.error().message);
    return found;
  }
  std::vector<GpuFacts> all;
  for (const cuda::Device& device : *devices) {
    std::erase_if(found, [&](const GpuFacts& gpu) { return gpu.name.ends_with(device.pci); });
    all.push_back(facts_of(device, (*driver)->version, sysfs));
  }
  std::ranges::move(found, std::back_inserter(all));
  return all;
}

Result<std::string> gpu_driver() {
  HEADRACE_TRY(const cuda::Driver* driver, cuda::driver());
  return fmt::format("{}, CUDA {}", driver->library, cuda::version_text(driver->version));
}

bool can_migrate_pages(const fs::path& procfs) {
  std::ifstream vmstat(procfs / "vmstat");
  for (std::string line; std::getline(vmstat, line);) {
    if (line.starts_with("pgmigrate_success ")) return true;
  }
  return false;
}

}  // namespace headrace
