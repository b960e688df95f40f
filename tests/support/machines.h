// SPDX-License-Identifier: Apache-2.0
// Small machines for tests, written down instead of discovered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "headrace/machine.h"

namespace headrace::test {

inline constexpr NodeId kDram{0};
inline constexpr NodeId kHbm{8};
inline constexpr NodeId kDisk{1000};
inline constexpr EngineId kCpuA{0};
inline constexpr EngineId kCpuB{1};
inline constexpr EngineId kSsd{2};

// Two memory nodes (dram 0 with CPUs, hbm 8 without), a disk, two engines for memory and one for
// the disk.
inline Machine small_machine() {
  Machine machine;
  machine.name = "small";
  machine.source = "test";
  machine.nodes = {
      {.id = kDram,
       .kind = NodeKind::dram,
       .reason = "test",
       .name = "node 0",
       .capacity = 1_GiB,
       .cpus = {0, 1},
       .distances = {{kDram, 10}, {kHbm, 20}}},
      {.id = kHbm,
       .kind = NodeKind::hbm,
       .reason = "test",
       .name = "node 8",
       .capacity = 256_MiB,
       .distances = {{kDram, 20}, {kHbm, 10}}},
      {.id = kDisk, .kind = NodeKind::storage, .reason = "test", .name = "disk", .path = "/"},
  };
  machine.engines = {
      {.id = kCpuA, .kind = EngineKind::cpu, .name = "cpu0", .home = kDram, .reason = "test"},
      {.id = kCpuB, .kind = EngineKind::cpu, .name = "cpu8", .home = kHbm, .reason = "test"},
      {.id = kSsd, .kind = EngineKind::ssd, .name = "disk", .home = kDisk, .reason = "test"},
  };
  return machine;
}

// The same with a second dram node 9 without CPUs.
inline Machine small_machine_with_far_node() {
  Machine machine = small_machine();
  machine.nodes.insert(machine.nodes.end() - 1, Node{.id = NodeId{9},
                                                     .kind = NodeKind::dram,
                                                     .reason = "test",
                                                     .name = "node 9",
                                                     .capacity = 1_GiB,
                                                     .distances = {{kDram, 30}, {kHbm, 30}}});
  return machine;
}

// Nodes of DRAM with these CPUs, from number 0 on; `per_socket` of them on each socket, which is
// unknown if it is 0.
inline Machine machine_of(const std::vector<CpuSet>& nodes, unsigned per_socket = 0,
                          Bytes capacity = 64_GiB) {
  Machine machine{.name = "made up"};
  for (const CpuSet& cpus : nodes) {
    const auto id = static_cast<unsigned>(machine.nodes.size());
    Node& node = machine.nodes.emplace_back();
    node = {.id = NodeId{id}, .kind = NodeKind::dram, .reason = "test", .capacity = capacity};
    node.cpus = cpus;
    if (per_socket > 0) node.socket = id / per_socket;
  }
  return machine;
}

// This host as if it had little memory and small caches: measured points then use buffers of a few
// MiB, where the host's own caches would need hundreds.
inline Machine small_host(Bytes memory = 128_MiB, const DiscoverOptions& options = {}) {
  Machine machine = Machine::discover(options).value();
  for (Node& node : machine.nodes) {
    if (node.byte_addressable() && node.capacity) node.capacity = std::min(*node.capacity, memory);
  }
  for (CacheLevel& cache : machine.caches) cache.size = std::min(cache.size, 1_MiB);
  return machine;
}

// Two sockets of 12 nodes, with 16 CPUs and a cache each.
inline Machine epyc_384() {
  Machine machine;
  for (std::uint32_t node = 0; node < 24; ++node) {
    CpuSet cpus(16);
    std::iota(cpus.begin(), cpus.end(), node * 16);
    machine.caches.push_back({3, 32_MiB, cpus});
    machine.nodes.push_back({.id = NodeId{node},
                             .kind = NodeKind::dram,
                             .reason = "test",
                             .capacity = 64_GiB,
                             .cpus = std::move(cpus),
                             .socket = node / 12});
  }
  return machine;
}

}  // namespace headrace::test
