// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/links.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "topology/discovery/facts.h"
#include "topology/topology.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// Bandwidth of a lane per PCIe generation, without its encoding overhead: 8 of 10 bits, then 128 of
// 130 (PCIE_SPEED2MBS_ENC in Linux, drivers/pci/pci.h, which subtracts nothing at 64 GT/s).
struct Generation {
  double gigatransfers;
  double useful;
  std::string_view name;
};
constexpr std::array<Generation, 6> kGenerations = {{{2.5, 0.8, "PCIe 1.0"},
                                                     {5, 0.8, "PCIe 2.0"},
                                                     {8, 128.0 / 130, "PCIe 3.0"},
                                                     {16, 128.0 / 130, "PCIe 4.0"},
                                                     {32, 128.0 / 130, "PCIe 5.0"},
                                                     {64, 1, "PCIe 6.0"}}};

// Reads "16.0 GT/s PCIe" from sysfs, which may also contain "Unknown".
const Generation* read_speed(const fs::path& file) {
  const std::string text = read_line(file).value_or("");
  double speed = 0;
  std::from_chars(text.data(), text.data() + text.size(), speed);
  const auto found = std::ranges::find(kGenerations, speed, &Generation::gigatransfers);
  return found == kGenerations.end() ? nullptr : &*found;
}

struct Wires {
  std::string name;      // "PCIe 4.0 x4"
  BytesPerSecond limit;  // in each direction
  std::string source;
};

// The number of lanes that a function and the port above it both have; nothing if one is unknown.
std::optional<std::uint64_t> most_lanes(const fs::path& function) {
  const auto own = read_number(function / "max_link_width");
  const auto port = read_number(function.parent_path() / "max_link_width");
  if (!own || !port) return std::nullopt;
  return std::min(*own, *port);
}

// GPUs lower the speed when idle, so their highest common speed with the port counts. The number of
// lanes does not change.
std::optional<Wires> read_wires(const fs::path& function, bool may_rest) {
  const Generation* now = read_speed(function / "current_link_speed");
  const auto lanes = read_number(function / "current_link_width");
  if (now == nullptr || !lanes || *lanes == 0 || *lanes > 32) return std::nullopt;
  std::string source = fmt::format("{:g} GT/s in sysfs", now->gigatransfers);
  const Generation* most = read_speed(function / "max_link_speed");
  const Generation* port = read_speed(function.parent_path() / "max_link_speed");
  if (may_rest && most != nullptr && port != nullptr) {
    most = std::min(most, port);
    if (now < most) source += fmt::format(", up to {:g} when awake", most->gigatransfers);
    now = std::max(now, most);
  }
  std::string name = fmt::format("{} x{}", now->name, *lanes);
  if (const auto all = most_lanes(function); all && *lanes < *all) {
    name += fmt::format(" of x{}", *all);
    source += fmt::format(", {} of {} lanes", *lanes, *all);
  }
  return Wires{.name = std::move(name),
               .limit = {now->gigatransfers * 1e9 * now->useful / 8 * static_cast<double>(*lanes)},
               .source = std::move(source)};
}

// "0000:17:00.0".
bool names_a_function(std::string_view name) {
  return name.size() >= 12 && name[name.size() - 2] == '.' && name[name.size() - 5] == ':' &&
         name[name.size() - 8] == ':';
}

// Adds the PCI function of a sysfs device, if it shows a link.
void add_function(fs::path device, std::vector<fs::path>& functions) {
  std::error_code error;
  device = fs::canonical(device, error);
  while (!error && device.has_relative_path() && !names_a_function(device.filename().string())) {
    device = device.parent_path();
  }
  if (!error && fs::exists(device / "current_link_speed", error)) functions.push_back(device);
}

std::vector<fs::path> sorted_once(std::vector<fs::path> functions) {
  std::ranges::sort(functions);
  functions.erase(std::ranges::unique(functions).begin(), functions.end());
  return functions;
}

bool is_attached(const std::vector<AttachedNode>& attached, NodeId id) {
  return std::ranges::find(attached, id, &AttachedNode::node) != attached.end();
}

// Memory nodes by socket; -1: unknown.
std::map<int, std::vector<NodeId>> memory_of_sockets(const Machine& machine,
                                                     const std::vector<AttachedNode>& attached) {
  std::map<int, std::vector<NodeId>> sockets;
  for (const Node& node : machine.nodes) {
    if (!node.byte_addressable() || is_attached(attached, node.id)) continue;
    sockets[node.socket ? static_cast<int>(*node.socket) : -1].push_back(node.id);
  }
  return sockets;
}

// Scalable Xeons and later ones have UPI, earlier Xeons QPI; EPYCs have xGMI.
LinkKind kind_between_sockets(const Machine& machine) {
  const auto cpu = machine.provenance.find("cpu");
  if (cpu == machine.provenance.end() || is_virtual(machine)) return LinkKind::socket;
  const auto says = [&](std::string_view word) { return cpu->second.contains(word); };
  constexpr std::array kWithUpi = {" Platinum ", " Gold ", " Silver ",
                                   " Bronze ",   " Max ",  "Xeon(R) 6"};
  if (says("EPYC")) return LinkKind::xgmi;
  return says("Xeon") && std::ranges::any_of(kWithUpi, says) ? LinkKind::upi : LinkKind::socket;
}

// The memory of the socket to which a node is attached; of all sockets if that is unknown.
std::vector<NodeId> host_of(const Machine& machine,
                            const std::map<int, std::vector<NodeId>>& sockets,
                            const AttachedNode& node) {
  const Node* near = node.near ? machine.find(*node.near) : nullptr;
  const Node* own = machine.find(node.node);
  std::vector<NodeId> all;
  for (const auto& [socket, memory] : sockets) {
    const bool here = near != nullptr ? std::ranges::find(memory, near->id) != memory.end()
                                      : own->socket && static_cast<int>(*own->socket) == socket;
    if (here) return memory;
    all.insert(all.end(), memory.begin(), memory.end());
  }
  std::ranges::sort(all);
  return all;
}

Link link_of(const Machine& machine, const AttachedNode& node, std::vector<NodeId> host) {
  Link link{.kind = node.kind, .a = {node.node}, .b = std::move(host)};
  std::vector<std::string> names;
  BytesPerSecond limit{0};
  bool known = !node.functions.empty();
  const bool is_gpu = machine.find(node.node)->kind == NodeKind::gpu;
  for (const fs::path& function : node.functions) {
    const auto wires = read_wires(function, is_gpu);
    names.push_back((wires ? wires->name + ", " : "") + function.filename().string());
    known = known && wires;
    if (!wires) continue;
    limit.value += wires->limit.value;
    link.each_way_source = wires->source;
  }
  link.reason = fmt::format("{}", fmt::join(names, "; "));
  if (node.functions.empty()) link.reason = "its memory is a NUMA node, so it is coherent";
  if (node.kind == LinkKind::cxl && !known) link.reason = "a CXL region";
  if (known) {
    link.each_way = limit;
  } else {
    link.each_way_source.clear();
  }
  if (is_virtual(machine)) link.reason += ", as the hypervisor shows it";
  return link;
}

}  // namespace

std::vector<fs::path> functions_of_disk(const fs::path& disk) {
  std::vector<fs::path> functions;
  // With several paths to an NVMe namespace, its disk is below the subsystem instead of a
  // controller. The subsystem also has links to the controllers (drivers/nvme/host/multipath.c of
  // Linux).
  const fs::path subsystem = disk.parent_path();
  if (subsystem.filename().string().starts_with("nvme-subsys")) {
    for (const std::string& name : list_directory(subsystem)) {
      if (number_after(name, "nvme")) add_function(subsystem / name, functions);
    }
  } else if (!disk.empty()) {
    add_function(disk, functions);
  }
  return sorted_once(std::move(functions));
}

std::vector<fs::path> functions_of_region(const fs::path& sysfs, const std::string& region) {
  // A region has the decoders of its endpoints as target0 and on. An endpoint has its memory device
  // as uport (Documentation/ABI/testing/sysfs-bus-cxl of Linux).
  const fs::path devices = sysfs / "bus/cxl/devices";
  std::vector<fs::path> functions;
  for (const std::string& name : list_directory(devices / region)) {
    if (!number_after(name, "target")) continue;
    const auto decoder = read_line(devices / region / name);
    if (!decoder) continue;
    std::error_code error;
    const fs::path endpoint = fs::canonical(devices / *decoder, error).parent_path();
    if (!error) add_function(endpoint / "uport", functions);
  }
  return sorted_once(std::move(functions));
}

std::vector<fs::path> functions_at(const fs::path& sysfs, const std::string& address) {
  std::vector<fs::path> functions;
  if (!address.empty()) add_function(sysfs / "bus/pci/devices" / address, functions);
  return functions;
}

std::vector<Link> find_links(const Machine& machine, const std::vector<AttachedNode>& attached) {
  const auto sockets = memory_of_sockets(machine, attached);
  std::vector<Link> links;
  for (const auto& [one, memory] : sockets) {
    for (const auto& [other, its] : sockets) {
      if (one < 0 || other <= one) continue;
      links.push_back({.kind = kind_between_sockets(machine),
                       .a = memory,
                       .b = its,
                       .reason = is_virtual(machine) ? "between sockets, as the hypervisor shows it"
                                                     : "between sockets"});
    }
  }
  std::map<std::vector<fs::path>, std::size_t> known;
  for (const AttachedNode& node : attached) {
    const auto same = known.find(node.functions);
    if (same != known.end()) {
      links[same->second].a.push_back(node.node);
      continue;
    }
    std::vector<NodeId> host = host_of(machine, sockets, node);
    if (host.empty()) continue;
    if (!node.functions.empty()) known[node.functions] = links.size();
    links.push_back(link_of(machine, node, std::move(host)));
  }
  return links;
}

}  // namespace headrace
