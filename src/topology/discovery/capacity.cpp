// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/capacity.h"

#include <fmt/core.h>

#include <algorithm>

namespace headrace {
namespace {

// Between two reads of the counters, pages allocated or freed by the kernel change them by a few
// MiB. The difference of interest is gigabytes.
bool differ(Bytes a, Bytes b) {
  const Bytes low = std::min(a, b), high = std::max(a, b);
  return high - low > std::max(high / 100, 16_MiB);
}

bool more_than_none(std::optional<Bytes> bytes) { return bytes && *bytes > Bytes{0}; }

Capacity own_capacity(const NodeFacts& node) {
  if (more_than_none(node.meminfo_total)) return {node.meminfo_total, "node meminfo"};
  if (more_than_none(node.hwloc_total)) return {node.hwloc_total, "hwloc"};
  if (node.meminfo_total) return {node.meminfo_total, "node meminfo"};
  if (node.hwloc_total) return {node.hwloc_total, "hwloc"};
  return {std::nullopt, "unknown"};
}

// The only node of a running machine has memory: a source that reports 0 does not know.
void forget_none(Capacity& only) {
  if (more_than_none(only.bytes)) return;
  only.bytes.reset();
  only.source = "unknown";
}

// Members are assigned one by one. A build by GCC 13.3.0 gave a capacity of 0, perhaps since it
// compiled the assignment of a whole Capacity wrongly.
void settle_one(const NodeFacts& node, Bytes total, Capacities& capacities) {
  Capacity& only = capacities.nodes.front();
  if (!only.bytes) {
    only.bytes = total;
    only.source = "/proc/meminfo";
  } else if (differ(*only.bytes, total)) {
    const std::string says = fmt::format("{} says {}", only.source, to_string(*only.bytes));
    only.bytes = total;
    only.source = fmt::format("/proc/meminfo ({})", says);
    capacities.warnings.push_back(
        fmt::format("node {}: {} but /proc/meminfo {}, which is taken: memory was added or "
                    "initialised after boot, or a container limits it",
                    node.id, says, to_string(total)));
  }
}

void settle_several(Bytes total, Capacities& capacities) {
  Bytes sum;
  for (const Capacity& each : capacities.nodes) {
    if (!each.bytes) return;
    sum += *each.bytes;
  }
  if (!differ(sum, total)) return;
  for (Capacity& each : capacities.nodes) each.source += " (contradicts /proc/meminfo)";
  capacities.warnings.push_back(
      fmt::format("the nodes have {} together but /proc/meminfo says {}: do not trust their "
                  "capacities, set budgets by hand",
                  to_string(sum), to_string(total)));
}

}  // namespace

Capacities choose_capacities(const std::vector<NodeFacts>& nodes, std::optional<Bytes> total) {
  Capacities capacities;
  for (const NodeFacts& node : nodes) {
    capacities.nodes.push_back(own_capacity(node));
    if (node.meminfo_total && node.hwloc_total && differ(*node.meminfo_total, *node.hwloc_total)) {
      capacities.warnings.push_back(fmt::format("node {}: node meminfo says {} but hwloc {}",
                                                node.id, to_string(*node.meminfo_total),
                                                to_string(*node.hwloc_total)));
    }
  }
  if (nodes.size() == 1) forget_none(capacities.nodes.front());
  if (!more_than_none(total) || nodes.empty()) return capacities;
  nodes.size() == 1 ? settle_one(nodes.front(), *total, capacities)
                    : settle_several(*total, capacities);
  return capacities;
}

}  // namespace headrace
