// SPDX-License-Identifier: Apache-2.0
// The kernel's nodes and memory tiers: CPUs, distances, addresses and rates, as sysfs shows them.
// Facts that cannot be read are left out. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/cpus.h"
#include "headrace/units.h"
#include "host/files.h"

namespace headrace {

// The number behind the prefix: 12 in "node12"; nullopt: another name.
std::optional<unsigned> number_after(std::string_view name, std::string_view prefix);

// All nodes, ascending; empty: a kernel without NUMA.
std::vector<NodeId> kernel_nodes(const HostFiles& files = HostFiles());
CpuSet cpus_of(const HostFiles& files, NodeId node);
// Distances as firmware states them (SLIT); rows that are not whole are left out.
std::map<std::pair<NodeId, NodeId>, unsigned> node_distances(const HostFiles& files = HostFiles());

// Nodes that the kernel takes to be equally fast; tiers with lower numbers are faster.
struct MemoryTier {
  unsigned number = 0;
  std::vector<NodeId> nodes;
};
// Fastest first; empty: a kernel before Linux 6.1.
std::vector<MemoryTier> memory_tiers(const HostFiles& files = HostFiles());

// The rate of writing to the node from its nearest CPUs, as firmware states it (HMAT); in bytes per
// second.
std::optional<std::uint64_t> write_bandwidth(const HostFiles& files, NodeId node);
// The node's physical memory, as ascending ranges that do not touch.
std::vector<std::pair<std::uint64_t, std::uint64_t>> addresses_of(const HostFiles& files,
                                                                  NodeId node);

}  // namespace headrace
