// SPDX-License-Identifier: Apache-2.0
// The placement policies place::nearest_fast and place::always.

#include <fmt/core.h>

#include <algorithm>

#include "core/fail.h"
#include "headrace/placement.h"
#include "place/near.h"
#include "place/ranked.h"

namespace headrace::place {
namespace {

struct NodeComparison {
  const Machine& machine;
  const Node& source;
  const Node* initiator;  // nullptr: unknown
  Scale speed;
  const char* how;

  bool far(const Node& node) const {
    return initiator != nullptr && same_socket(machine, *initiator, node) == false;
  }
  // True if faster than the source; or equally fast and, unlike the source, on the initiator's
  // socket.
  bool gains(const Node& node) const {
    const double own = *speed(node);
    const double given = source.byte_addressable() ? *speed(source) : 0;
    if (own > given * kSpeedTolerance) return true;
    return own * kSpeedTolerance >= given && far(source) && !far(node);
  }
};

// Memory nodes other than the source with enough capacity for the bytes.
std::vector<const Node*> roomy_nodes(const Machine& machine, const PlacementRequest& request) {
  std::vector<const Node*> nodes;
  for (const Node& node : machine.nodes) {
    if (!node.byte_addressable() || node.id == request.source) continue;
    if (node.capacity && (*node.capacity < request.bytes || *node.capacity == Bytes{0})) continue;
    nodes.push_back(&node);
  }
  return nodes;
}

// Chooses the first scale that knows the source and all candidates. Kinds are always known.
void choose_scale(const std::vector<const Node*>& nodes, NodeComparison& compared,
                  std::optional<NodeId> initiator) {
  const auto knows_all = [&](const Scale& scale) {
    if (compared.source.byte_addressable() && !scale(compared.source)) return false;
    return std::ranges::all_of(nodes, [&](const Node* node) { return scale(*node).has_value(); });
  };
  const std::pair<Scale, const char*> scales[] = {
      {by_bandwidth(initiator, true), "by measured bandwidth"},
      {by_bandwidth(initiator, false), "by rated bandwidth"},
      {bandwidth_of_kind, "by kind"}};
  for (const auto& [scale, how] : scales) {
    compared.speed = scale;
    compared.how = how;
    if (knows_all(scale)) return;
  }
}

// The user of the bytes; by default the CPUs nearest to the source.
const Node* find_initiator(const Machine& machine, const Node& source,
                           std::optional<NodeId> initiator) {
  if (initiator) return machine.find(*initiator);
  return source.byte_addressable() ? host_of(machine, source) : nullptr;
}

}  // namespace

Result<Placement> nearest_fast(const Machine& machine, const PlacementRequest& request) {
  HEADRACE_TRY(const Node* source, machine.node(request.source));
  if (request.initiator) HEADRACE_TRY_STATUS(machine.node(*request.initiator));
  NodeComparison compared{.machine = machine,
                          .source = *source,
                          .initiator = find_initiator(machine, *source, request.initiator),
                          .speed = {},
                          .how = ""};
  std::vector<const Node*> nodes = roomy_nodes(machine, request);
  choose_scale(nodes, compared,
               compared.initiator ? std::optional(compared.initiator->id) : std::nullopt);
  std::erase_if(nodes, [&](const Node* node) { return !compared.gains(*node); });
  // Prefers the initiator's socket if a node there is faster; else any node.
  if (std::ranges::any_of(nodes, [&](const Node* node) { return !compared.far(*node); })) {
    std::erase_if(nodes, [&](const Node* node) { return compared.far(*node); });
  }
  if (nodes.empty()) {
    return fail(ErrorCode::absent, "no node with {} of room is faster than node {} ({}), {}",
                to_string(request.bytes), raw(source->id), to_string(source->kind), compared.how);
  }
  double best = 0;
  for (const Node* node : nodes) best = std::max(best, *compared.speed(*node));
  std::erase_if(nodes,
                [&](const Node* node) { return *compared.speed(*node) * kSpeedTolerance < best; });
  const auto nearest = std::ranges::min_element(nodes, {}, [&](const Node* node) {
    return compared.initiator ? nearness(machine, *compared.initiator, *node)
                              : Nearness{.id = raw(node->id)};
  });
  Placement placement = Placement::on((*nearest)->id);
  placement.reason = fmt::format("node {} ({}) is faster than node {} ({}) {}", raw((*nearest)->id),
                                 to_string((*nearest)->kind), raw(source->id),
                                 to_string(source->kind), compared.how);
  return placement;
}

PlacementPolicy always(NodeId node) {
  return [node](const Machine& machine, const PlacementRequest&) -> Result<Placement> {
    Placement placement = Placement::on(node);
    if (gpu_of(machine, placement) == nullptr) {
      HEADRACE_TRY(placement, resolve(machine, placement));
    }
    placement.reason = fmt::format("always node {}", raw(node));
    return placement;
  };
}

PlacementPolicy always(Placement placement) {
  return [placement = std::move(placement)](const Machine&, const PlacementRequest&) {
    return Result<Placement>(placement);
  };
}

}  // namespace headrace::place
