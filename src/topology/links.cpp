// SPDX-License-Identifier: Apache-2.0
// The links on the path between two nodes: a breadth-first search from node to node.

#include <algorithm>
#include <map>
#include <queue>

#include "topology/topology.h"

namespace headrace {
namespace {

bool holds(const std::vector<NodeId>& nodes, NodeId id) {
  return std::ranges::find(nodes, id) != nodes.end();
}

// True if both nodes are on one side of the link, so no path between them crosses it.
bool passes_by(const Link& link, NodeId one, NodeId other) {
  const auto both = [&](const std::vector<NodeId>& end) {
    return holds(end, one) && holds(end, other);
  };
  return both(link.a) || both(link.b);
}

// The first step that reached a node.
struct Step {
  NodeId before;
  Crossing crossing;
};

}  // namespace

std::vector<Crossing> way_between(const Machine& machine, NodeId from, NodeId to) {
  if (from == to) return {};
  std::map<NodeId, Step> reached;
  std::queue<NodeId> next({from});
  const auto cross = [&](NodeId at, const std::vector<NodeId>& end, Crossing crossing) {
    for (const NodeId id : end) {
      if (id != from && reached.try_emplace(id, Step{at, crossing}).second) next.push(id);
    }
  };
  while (!next.empty() && !reached.contains(to)) {
    const NodeId at = next.front();
    next.pop();
    for (std::size_t i = 0; i < machine.links.size(); ++i) {
      const Link& link = machine.links[i];
      if (passes_by(link, from, to)) continue;
      if (holds(link.a, at)) cross(at, link.b, {i, true});
      if (holds(link.b, at)) cross(at, link.a, {i, false});
    }
  }
  std::vector<Crossing> way;
  for (auto step = reached.find(to); step != reached.end();
       step = reached.find(step->second.before)) {
    way.push_back(step->second.crossing);
  }
  std::ranges::reverse(way);
  return way;
}

}  // namespace headrace
