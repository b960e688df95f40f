// SPDX-License-Identifier: Apache-2.0
// Helpers of this folder's tests: this host as a machine.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <vector>

#include "headrace/machine.h"
#include "headrace/placement.h"
#include "host/host_memory.h"

namespace headrace {

// This host, with only the fields that placement needs.
inline Machine this_host() {
  Machine machine;
  machine.source = "test";
  for (const NodeMemory& node : read_host_memory().nodes) {
    if (!node.allowed) continue;
    machine.nodes.push_back({.id = node.id, .kind = NodeKind::dram, .reason = "test"});
  }
  machine.nodes.front().cpus = {0};
  return machine;
}

// This host plus a CXL device that went offline after the machine was discovered.
inline Machine with_a_node_gone() {
  Machine machine = this_host();
  machine.nodes.push_back(
      {.id = NodeId{999}, .kind = NodeKind::cxl, .reason = "test", .capacity = 1_GiB});
  return machine;
}

inline std::vector<NodeId> ids_of(const Machine& machine) {
  std::vector<NodeId> ids;
  for (const Node& node : machine.nodes) ids.push_back(node.id);
  return ids;
}

inline Placement on_first(const Machine& machine, PageSize pages = PageSize::base) {
  Placement placement = Placement::on(machine.nodes.front().id);
  placement.pages = pages;
  return placement;
}

inline std::uint64_t page_size() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }
inline std::uint64_t pages_in(Bytes bytes) { return (bytes.value + page_size() - 1) / page_size(); }

}  // namespace headrace
