// SPDX-License-Identifier: Apache-2.0
// Nearness of nodes, from all of the machine's knowledge.
#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "headrace/placement.h"

namespace headrace {

// Smaller is nearer. In falling order of trust: the SLIT distance; whether firmware lists `from` as
// an initiator of `to`; a shared socket; the node's number, so that ties always have the same
// result.
struct Nearness {
  bool elsewhere = false;  // another node
  unsigned distance = 0;   // by SLIT; the largest if unknown
  bool not_initiator = false;
  bool other_socket = false;
  std::uint32_t id = 0;
  friend auto operator<=>(const Nearness&, const Nearness&) = default;
};

Nearness nearness(const Machine& machine, const Node& from, const Node& to);

// True if both are on one socket: by Node::socket, else by distance (docs/design/routes.md);
// nothing: neither is known.
std::optional<bool> same_socket(const Machine& machine, const Node& a, const Node& b);

}  // namespace headrace
