// SPDX-License-Identifier: Apache-2.0
#include "place/ranked.h"

#include <algorithm>
#include <optional>

#include "core/check.h"
#include "place/near.h"

namespace headrace {
namespace {

using Nodes = std::vector<const Node*>;

// The best value among initiators, or that of `initiator`.
Scale by_access(std::optional<NodeId> initiator, bool measured,
                std::optional<double> (*value)(const AccessAttributes&)) {
  return [=](const Node& node) -> std::optional<double> {
    std::optional<double> best;
    for (const AccessAttributes& access : node.access) {
      const auto found = access.measured == measured ? value(access) : std::nullopt;
      if (!found) continue;
      if (access.initiator == initiator) return found;
      best = std::max(best.value_or(0), *found);
    }
    return best;
  };
}

Scale first_that_knows_all(const Nodes& nodes, std::vector<Scale> scales) {
  for (Scale& scale : scales) {
    const bool all =
        std::ranges::all_of(nodes, [&](const Node* node) { return scale(*node).has_value(); });
    if (all) return std::move(scale);
  }
  CHECK(false);  // the last scale knows every node
  return {};
}

std::optional<double> capacity_of(const Node& node) {
  return node.capacity ? static_cast<double>(node.capacity->value) : 0.0;
}

Scale scale_of(const Nodes& nodes, Property property, std::optional<NodeId> initiator) {
  switch (property) {
    case Property::fastest:
    case Property::highest_bandwidth:
      return first_that_knows_all(nodes, {by_bandwidth(initiator, true),
                                          by_bandwidth(initiator, false), bandwidth_of_kind});
    case Property::lowest_latency:
      return first_that_knows_all(
          nodes, {by_latency(initiator, true), by_latency(initiator, false), latency_of_kind});
    case Property::largest: return capacity_of;
  }
  CHECK(false);
  return {};
}

// The nodes that are equal to the best.
Nodes best_of(const Nodes& nodes, const Scale& scale) {
  double best = 0;
  for (const Node* node : nodes) best = std::max(best, *scale(*node));
  Nodes equals = nodes;
  std::erase_if(equals, [&](const Node* node) { return *scale(*node) * kSpeedTolerance < best; });
  return equals;
}

}  // namespace

Scale by_bandwidth(std::optional<NodeId> initiator, bool measured) {
  return by_access(initiator, measured, [](const AccessAttributes& access) {
    return access.read_bandwidth ? std::optional(access.read_bandwidth->value) : std::nullopt;
  });
}

Scale by_latency(std::optional<NodeId> initiator, bool measured) {
  return by_access(initiator, measured, [](const AccessAttributes& access) {
    const bool known = access.read_latency && access.read_latency->count() > 0;
    return known ? std::optional(1 / seconds(*access.read_latency)) : std::nullopt;
  });
}

std::optional<double> bandwidth_of_kind(const Node& node) {
  switch (node.kind) {
    case NodeKind::hbm: return 8;
    case NodeKind::dram: return 4;
    case NodeKind::cxl: return 2;
    case NodeKind::gpu:
    case NodeKind::storage: return 1;
  }
  CHECK(false);
  return std::nullopt;
}

// On processors with both, HBM has a longer path than DDR; CXL is behind a link.
std::optional<double> latency_of_kind(const Node& node) {
  switch (node.kind) {
    case NodeKind::dram: return 8;
    case NodeKind::hbm: return 6;
    case NodeKind::cxl: return 3;
    case NodeKind::gpu:
    case NodeKind::storage: return 1;
  }
  CHECK(false);
  return std::nullopt;
}

std::vector<const Node*> ranked_by(const Machine& machine, Property property,
                                   const Node* initiator) {
  Nodes left;
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable() && node.capacity != Bytes{0}) left.push_back(&node);
  }
  if (left.empty()) return {};
  const auto id = initiator == nullptr ? std::nullopt : std::optional(initiator->id);
  const Scale scale = scale_of(left, property, id);
  const Scale latency = scale_of(left, Property::lowest_latency, id);
  Nodes ranked;
  while (!left.empty()) {
    Nodes equals = best_of(left, scale);
    if (property == Property::fastest) equals = best_of(equals, latency);
    const Node* next = *std::ranges::min_element(equals, {}, [&](const Node* node) {
      return initiator == nullptr ? Nearness{.id = raw(node->id)}
                                  : nearness(machine, *initiator, *node);
    });
    ranked.push_back(next);
    std::erase(left, next);
  }
  return ranked;
}

}  // namespace headrace
