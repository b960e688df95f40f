// SPDX-License-Identifier: Apache-2.0
// How much memory each node has, from sources that contradict each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/machine.h"
#include "topology/discovery/sysfs.h"

namespace headrace {

struct Capacity {
  std::optional<Bytes> bytes;
  std::string source;
};

struct Capacities {
  std::vector<Capacity> nodes;  // as the facts
  std::vector<std::string> warnings;
};

// The rule: a node's own meminfo counts, then hwloc; first those that give more than 0. A total of
// 0 is unknown, and so is a capacity of 0 of the only node: among several a node with CPUs may have
// no memory. `total`, what the kernel has to give in all, must be their sum. Where it is not
// (memory added or initialised after boot, as on many virtual machines; a container's limit),
// `total` is right: of one node it is the capacity; among several the difference cannot be told
// apart, so the nodes keep theirs and a warning says so.
Capacities choose_capacities(const std::vector<NodeFacts>& nodes, std::optional<Bytes> total);

}  // namespace headrace
