// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "core/text/files.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// "MemTotal:  4417752 kB" or "Node 0 MemTotal: ..." of a meminfo file.
std::optional<Bytes> read_mem_total(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const auto at = line.find("MemTotal:");
    if (at == std::string::npos) continue;
    std::istringstream rest(line.substr(at + 9));
    std::uint64_t kib = 0;
    // A value of 2^53 or more is a broken file, not a memory size.
    if (rest >> kib && kib < (std::uint64_t{1} << 53)) return Bytes{kib << 10};
    return std::nullopt;
  }
  return std::nullopt;
}

// One access class: its values hold for all initiators linked there.
std::vector<AccessAttributes> read_access_class(const fs::path& directory) {
  // Latencies in ns and bandwidths in MiB/s (Documentation/admin-guide/mm/numaperf.rst).
  const auto latency = [&](const char* name) -> std::optional<Nanoseconds> {
    const auto value = read_number(directory / name);
    // 0 means unknown.
    if (!value || *value == 0 || *value > 1'000'000'000) return std::nullopt;
    return Nanoseconds{static_cast<std::int64_t>(*value)};
  };
  const auto bandwidth = [&](const char* name) -> std::optional<BytesPerSecond> {
    const auto value = read_number(directory / name);
    if (!value || *value == 0) return std::nullopt;
    return BytesPerSecond{static_cast<double>(*value) * 0x1p20};
  };
  AccessAttributes figures{.read_latency = latency("read_latency"),
                           .write_latency = latency("write_latency"),
                           .read_bandwidth = bandwidth("read_bandwidth"),
                           .write_bandwidth = bandwidth("write_bandwidth"),
                           .source = "HMAT in sysfs"};
  if (!figures.read_latency && !figures.read_bandwidth && !figures.write_latency &&
      !figures.write_bandwidth) {
    return {};
  }
  std::vector<AccessAttributes> access;
  for (const std::string& name : list_directory(directory)) {
    const auto initiator = number_after(name, "node");
    if (!initiator) continue;
    figures.initiator = NodeId{*initiator};
    access.push_back(figures);
  }
  return access;
}

// access1 counts only CPUs. access0 also counts GPUs and network cards; older kernels have no
// other.
std::vector<AccessAttributes> read_access(const fs::path& node) {
  auto access = read_access_class(node / "access1" / "initiators");
  return access.empty() ? read_access_class(node / "access0" / "initiators") : access;
}

// The largest of memory_side_cache/indexN, in the format of
// Documentation/admin-guide/mm/numaperf.rst and drivers/base/node.c: sizes in bytes; 0 is
// direct-mapped and write-back, 1 is indexed and write-through, 2 is other.
std::optional<MemorySideCache> read_side_cache(const fs::path& node) {
  const auto word = [](const fs::path& path, const char* zero, const char* one) -> std::string {
    const auto value = read_number(path);
    return value == 0U ? zero : value == 1U ? one : "";
  };
  std::optional<MemorySideCache> largest;
  for (const std::string& name : list_directory(node / "memory_side_cache")) {
    const fs::path index = node / "memory_side_cache" / name;
    const auto size = read_number(index / "size");
    if (!number_after(name, "index") || !size || *size == 0) continue;
    if (largest && largest->size.value >= *size) continue;
    largest = MemorySideCache{
        .size = Bytes{*size},
        .indexing = word(index / "indexing", "direct-mapped", "indexed"),
        .write_policy = word(index / "write_policy", "write-back", "write-through")};
    if (const auto line = read_number(index / "line_size"); line && *line != 0) {
      largest->line = Bytes{*line};
    }
  }
  return largest;
}

std::optional<unsigned> read_socket(const fs::path& sysfs, const CpuSet& cpus) {
  if (cpus.empty()) return std::nullopt;
  const auto package = read_number(sysfs / "devices/system/cpu" / fmt::format("cpu{}", cpus[0]) /
                                   "topology/physical_package_id");
  // The kernel writes -1 for unknown, which is not a number here.
  if (!package || *package > 65535) return std::nullopt;
  return static_cast<unsigned>(*package);
}

// Records the dax devices that became memory of a node, and by a device's real path whether it
// belongs to a CXL region or to persistent memory.
void read_dax(const fs::path& sysfs, std::vector<NodeFacts>& nodes) {
  const fs::path devices = sysfs / "bus/dax/devices";
  for (const std::string& name : list_directory(devices)) {
    const auto target = read_number(devices / name / "target_node");
    const auto node =
        std::ranges::find_if(nodes, [&](const NodeFacts& n) { return target == n.id; });
    // A device that is not used as memory may name its nearest node with CPUs.
    if (node == nodes.end() || !node->cpus.empty()) continue;
    node->dax_device = name;
    std::error_code ignored;
    std::string parent;
    for (const fs::path& part : fs::canonical(devices / name, ignored)) {
      if (parent.starts_with("decoder") && part.string().starts_with("region")) {
        node->cxl_region = part.string();
      }
      if (part.string().starts_with("ndbus")) node->pmem_bus = part.string();
      parent = part.string();
    }
  }
}

// "512K", "32M" in a cache's size file.
std::optional<Bytes> parse_cache_size(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value == 0 || value > (std::uint64_t{1} << 40)) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit == "K") return Bytes{value << 10};
  if (unit == "M") return Bytes{value << 20};
  return unit.empty() ? std::optional(Bytes{value}) : std::nullopt;
}

}  // namespace

std::optional<std::string> read_line(const fs::path& path) {
  std::string line = first_line(path);
  while (line.ends_with(' ')) line.pop_back();
  return line.empty() ? std::nullopt : std::optional(std::move(line));
}

std::optional<std::uint64_t> read_number(const fs::path& path) {
  const auto line = read_line(path);
  if (!line) return std::nullopt;
  std::string_view text = *line;
  const int base = text.starts_with("0x") ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<unsigned> read_numa_node(const fs::path& device) {
  // -1 means unknown, and is not a number here.
  const auto node = read_number(device / "numa_node");
  return node && *node < 1000 ? std::optional(static_cast<unsigned>(*node)) : std::nullopt;
}

std::vector<std::string> list_directory(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  // Sorted by length first: node2 comes before node10.
  std::ranges::sort(names, {}, [](const std::string& name) {
    return std::tuple<std::size_t, const std::string&>(name.size(), name);
  });
  return names;
}

std::vector<NodeFacts> read_nodes(const fs::path& sysfs) {
  const HostFiles files(sysfs, {});
  const auto distances = node_distances(files);
  std::vector<NodeFacts> nodes;
  for (const NodeId id : kernel_nodes(files)) {
    const fs::path path = sysfs / fmt::format("devices/system/node/node{}", raw(id));
    NodeFacts node{.id = raw(id),
                   .cpus = cpus_of(files, id),
                   .meminfo_total = read_mem_total(path / "meminfo"),
                   .access = read_access(path)};
    for (const auto& [pair, distance] : distances) {
      if (pair.first == id) node.distances[pair.second] = distance;
    }
    node.socket = read_socket(sysfs, node.cpus);
    node.side_cache = read_side_cache(path);
    nodes.push_back(std::move(node));
  }
  read_dax(sysfs, nodes);
  for (const MemoryTier& tier : memory_tiers(files)) {
    for (NodeFacts& node : nodes) {
      if (std::ranges::binary_search(tier.nodes, NodeId{node.id})) node.tier = tier.number;
    }
  }
  return nodes;
}

CpuSet read_online_cpus(const fs::path& sysfs, const fs::path& procfs) {
  const auto online = parse_cpu_list(read_line(sysfs / "devices/system/cpu/online").value_or(""));
  if (online && !online->empty()) return *online;
  CpuSet cpus;
  std::ifstream cpuinfo(procfs / "cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("processor\t")) cpus.push_back(static_cast<unsigned>(cpus.size()));
  }
  return cpus;
}

std::vector<CacheLevel> read_caches(const fs::path& sysfs) {
  const fs::path directory = sysfs / "devices/system/cpu";
  std::set<std::tuple<CpuSet, unsigned, std::uint64_t>> seen;
  std::vector<CacheLevel> caches;
  for (const std::string& cpu : list_directory(directory)) {
    if (!number_after(cpu, "cpu")) continue;
    for (const std::string& name : list_directory(directory / cpu / "cache")) {
      const fs::path index = directory / cpu / "cache" / name;
      const auto type = read_line(index / "type");
      if (!number_after(name, "index") || (type != "Data" && type != "Unified")) continue;
      const auto level = read_number(index / "level");
      const auto size = parse_cache_size(read_line(index / "size").value_or(""));
      const auto cpus = parse_cpu_list(read_line(index / "shared_cpu_list").value_or(""));
      if (!level || *level > 9 || !size || !cpus || cpus->empty()) continue;
      if (!seen.emplace(*cpus, static_cast<unsigned>(*level), size->value).second) continue;
      caches.push_back({static_cast<unsigned>(*level), *size, *cpus});
    }
  }
  return caches;
}

std::optional<Bytes> read_total_memory(const fs::path& procfs) {
  return read_mem_total(procfs / "meminfo");
}

namespace {

// A line in the first CPU's entry.
std::optional<std::string> cpuinfo_line(const fs::path& procfs, std::string_view name) {
  std::ifstream cpuinfo(procfs / "cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with(name) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> read_cpu_model(const fs::path& procfs) {
  if (auto name = cpuinfo_line(procfs, "model name")) return name;
  // Arm CPUs have numbers instead of names. Only one is named here: it contains HBM.
  const bool fujitsu = cpuinfo_line(procfs, "CPU implementer") == "0x46";
  if (fujitsu && cpuinfo_line(procfs, "CPU part") == "0x001") return "Fujitsu A64FX";
  return std::nullopt;
}

bool read_is_virtual(const fs::path& sysfs, const fs::path& procfs) {
  if (const auto flags = cpuinfo_line(procfs, "flags")) {
    return (*flags + " ").find(" hypervisor ") != std::string::npos;
  }
  const fs::path tree = procfs / "device-tree";
  std::error_code error;
  if (fs::exists(tree / "hypervisor", error)) return true;
  if (first_line(tree / "compatible").starts_with("linux,dummy-virt")) return true;
  const auto said = [&](const char* name) {
    return read_line(sysfs / "class/dmi/id" / name).value_or("");
  };
  const std::string product = said("product_name");
  // EC2's bare-metal machines report the same vendor, with a product such as "c7g.metal".
  if (said("sys_vendor") == "Amazon EC2") return product.find(".metal") == std::string::npos;
  // The names that systemd-detect-virt uses, without vendors that also build machines.
  constexpr std::array kBegins = {"KVM",
                                  "QEMU",
                                  "OpenStack",
                                  "KubeVirt",
                                  "VMware",
                                  "VirtualBox",
                                  "Xen",
                                  "Parallels",
                                  "BHYVE",
                                  "Hyper-V",
                                  "Apple Virtualization",
                                  "Google Compute Engine",
                                  "Virtual Machine"};
  return std::ranges::any_of(kBegins, [&](const char* begin) {
    return product.starts_with(begin) || said("sys_vendor").starts_with(begin) ||
           said("product_version").starts_with(begin);
  });
}

std::string read_system(const fs::path& sysfs) {
  const fs::path firmware = sysfs / "class/dmi/id";
  std::string system = read_line(firmware / "sys_vendor").value_or("");
  const std::string name = read_line(firmware / "product_name").value_or("");
  if (!system.empty() && !name.empty()) system += ' ';
  return system + name;
}

}  // namespace headrace
