// SPDX-License-Identifier: Apache-2.0
// The memory of each node, from sources that contradict each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/machine.h"
#include "topology/discovery/facts.h"

namespace headrace {

struct Capacity {
  std::optional<Bytes> bytes;
  std::string source;
};

struct Capacities {
  std::vector<Capacity> nodes;  // in the order of the facts
  std::vector<std::string> warnings;
};

// Chooses the capacities:
// - A node's own meminfo counts, then hwloc; the first of them above 0.
// - A total of 0 is unknown. A capacity of 0 is unknown for an only node; one of several nodes with
//   CPUs may have no memory.
// - `total`, all memory of the kernel, must be the sum. If it is not, `total` is right: memory was
//   added or initialised after boot, as on many virtual machines, or a container has a limit. An
//   only node then has `total`. Several nodes keep theirs with a warning, since the difference
//   cannot be assigned.
Capacities choose_capacities(const std::vector<NodeFacts>& nodes, std::optional<Bytes> total);

}  // namespace headrace
