// SPDX-License-Identifier: Apache-2.0
#include "place/near.h"

#include <algorithm>
#include <limits>

#include "topology/topology.h"

namespace headrace {
namespace {

constexpr unsigned kUnknownDistance = std::numeric_limits<unsigned>::max();

std::optional<unsigned> distance(const Node& from, const Node& to) {
  const auto found = from.distances.find(to.id);
  return found == from.distances.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

Nearness nearness(const Machine& machine, const Node& from, const Node& to) {
  const bool initiator = (to.gpu && to.gpu->host == from.id) ||
                         std::ranges::any_of(to.access, [&](const AccessAttributes& each) {
                           return each.initiator == from.id;
                         });
  return {.elsewhere = from.id != to.id,
          .distance = distance(from, to).value_or(kUnknownDistance),
          .not_initiator = !initiator,
          .other_socket = !same_socket(machine, from, to).value_or(false),
          .id = raw(to.id)};
}

const Node* host_of(const Machine& machine, const Node& node) {
  if (!node.cpus.empty()) return &node;
  const Node* best = nullptr;
  std::optional<Nearness> nearest;
  for (const Node& each : machine.nodes) {
    if (each.cpus.empty() || !each.byte_addressable()) continue;
    Nearness found = nearness(machine, each, node);
    found.id = raw(each.id);
    if (nearest && *nearest <= found) continue;
    nearest = found;
    best = &each;
  }
  return best;
}

std::optional<bool> same_socket(const Machine& machine, const Node& a, const Node& b) {
  if (a.id == b.id) return true;
  if (a.socket && b.socket) return *a.socket == *b.socket;
  const auto apart = distance(a, b);
  if (!apart) return std::nullopt;
  return *apart <= socket_reach(machine);
}

}  // namespace headrace
