// SPDX-License-Identifier: Apache-2.0
#include "place/ranked.h"

#include <algorithm>
#include <optional>

#include "core/check.h"
#include "place/near.h"
#include "place/speed.h"

namespace headrace {
namespace {

using Nodes = std::vector<const Node*>;

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
