// SPDX-License-Identifier: Apache-2.0
#include "host/nodes.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace headrace {
namespace {

constexpr const char* kNodesFolder = "sys/devices/system/node";
// Larger numbers belong to storage devices (units.h).
constexpr unsigned kMemoryIds = 1000;

std::string folder_of(NodeId node) { return fmt::format("{}/node{}", kNodesFolder, raw(node)); }

// The numbers behind `prefix` at the ends of the names, ascending.
std::vector<unsigned> numbers_of(const HostFiles& files, const std::string& folder,
                                 std::string_view prefix) {
  std::vector<unsigned> numbers;
  const auto names = files.names(fmt::format("{}/{}[0-9]*", folder, prefix));
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (const auto number = number_after(name.substr(folder.size() + 1), prefix)) {
      numbers.push_back(*number);
    }
  }
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace

std::optional<unsigned> number_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  unsigned value = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return value;
}

std::vector<NodeId> kernel_nodes(const HostFiles& files) {
  std::vector<NodeId> nodes;
  for (const unsigned id : numbers_of(files, kNodesFolder, "node")) {
    if (id < kMemoryIds) nodes.push_back(NodeId{id});
  }
  return nodes;
}

CpuSet cpus_of(const HostFiles& files, NodeId node) {
  return parse_cpu_list(files.text(folder_of(node) + "/cpulist")).value_or(CpuSet{});
}

std::map<std::pair<NodeId, NodeId>, unsigned> node_distances(const HostFiles& files) {
  std::map<std::pair<NodeId, NodeId>, unsigned> distances;
  const std::vector<NodeId> nodes = kernel_nodes(files);
  for (const NodeId from : nodes) {
    std::istringstream words(files.text(folder_of(from) + "/distance"));
    std::vector<unsigned> row;
    for (unsigned distance = 0; words >> distance;) row.push_back(distance);
    if (row.size() < nodes.size()) continue;
    for (std::size_t i = 0; i < nodes.size(); ++i) distances[{from, nodes[i]}] = row[i];
  }
  return distances;
}

std::vector<MemoryTier> memory_tiers(const HostFiles& files) {
  constexpr const char* kTiers = "sys/devices/virtual/memory_tiering";
  std::vector<MemoryTier> tiers;
  for (const unsigned number : numbers_of(files, kTiers, "memory_tier")) {
    const auto members =
        parse_cpu_list(files.text(fmt::format("{}/memory_tier{}/nodelist", kTiers, number)));
    if (!members || members->empty()) continue;
    tiers.push_back({.number = number, .nodes = {}});
    for (const unsigned id : *members) tiers.back().nodes.push_back(NodeId{id});
  }
  return tiers;
}

std::optional<std::uint64_t> write_bandwidth(const HostFiles& files, NodeId node) {
  // In MiB/s (Documentation/admin-guide/mm/numaperf.rst); 0 means unknown.
  const auto rate =
      number_after(files.text(folder_of(node) + "/access0/initiators/write_bandwidth"), "");
  return rate.value_or(0) == 0 ? std::nullopt : std::optional(std::uint64_t{*rate} << 20);
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> addresses_of(const HostFiles& files,
                                                                  NodeId node) {
  const std::string text = files.text("sys/devices/system/memory/block_size_bytes");
  std::uint64_t size = 0;
  std::from_chars(text.data(), text.data() + text.size(), size, 16);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const unsigned block : numbers_of(files, folder_of(node), "memory")) {
    if (files.text(fmt::format("{}/memory{}/online", folder_of(node), block)) == "0") continue;
    const std::uint64_t begin = block * size;
    if (ranges.empty() || ranges.back().second != begin) ranges.emplace_back(begin, begin);
    ranges.back().second = begin + size;
  }
  return ranges;
}

}  // namespace headrace
