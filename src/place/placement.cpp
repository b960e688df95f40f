#include "headrace/placement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "place/near.h"

namespace headrace {
namespace {

Result<Placement> resolve_kind(const Machine& machine, Placement placement,
                               std::optional<NodeId> near) {
  const NodeKind kind = *placement.kind;
  std::vector<const Node*> nodes = machine.of_kind(kind);
  std::erase_if(nodes, [](const Node* node) { return node->capacity == Bytes{0}; });
  if (nodes.empty()) {
    std::set<std::string_view> kinds;
    for (const Node& node : machine.nodes) kinds.insert(to_string(node.kind));
    return fail(ErrorCode::absent,
                "no {} node here, only {}; if one was not recognised set HEADRACE_NODES=ID={}",
                to_string(kind), fmt::join(kinds, ", "), to_string(kind));
  }
  if (near) {
    HEADRACE_TRY(const Node* from, machine.node(*near));
    std::ranges::sort(nodes, {}, [&](const Node* node) { return nearness(machine, *from, *node); });
  }
  placement.kind.reset();
  for (const Node* node : nodes) placement.nodes.push_back({node->id, 1});
  return placement;
}

}  // namespace

std::string_view to_string(PageSize size) {
  switch (size) {
    case PageSize::base: return "base";
    case PageSize::transparent: return "transparent";
    case PageSize::huge_2m: return "huge_2m";
    case PageSize::huge_1g: return "huge_1g";
  }
  CHECK(false);
  return {};
}

Placement Placement::on(NodeId node) { return {.nodes = {{node, 1}}}; }

Placement Placement::on(NodeKind kind) { return {.kind = kind}; }

Placement Placement::interleave(const std::vector<NodeId>& nodes) {
  Placement placement;
  for (const NodeId node : nodes) placement.nodes.push_back({node, 1});
  return placement;
}

Placement Placement::weighted(std::vector<NodeWeight> nodes) { return {.nodes = std::move(nodes)}; }

Result<Placement> resolve(const Machine& machine, const Placement& placement,
                          std::optional<NodeId> near) {
  if (placement.kind && !placement.nodes.empty()) {
    return fail(ErrorCode::invalid, "a placement has both nodes and a kind; give one of them");
  }
  if (!placement.kind && placement.nodes.empty()) {
    return fail(ErrorCode::invalid, "a placement without nodes; give nodes or a kind");
  }
  Placement resolved = placement;
  if (placement.kind) {
    HEADRACE_TRY(Placement of_kind, resolve_kind(machine, placement, near));
    resolved = std::move(of_kind);
  }
  std::set<NodeId> seen;
  for (const NodeWeight& each : resolved.nodes) {
    HEADRACE_TRY(const Node* node, machine.node(each.node));
    if (!node->byte_addressable()) {
      return fail(ErrorCode::unsupported, "node {} is {}, which holds no CPU memory; use another",
                  raw(each.node), to_string(node->kind));
    }
    if (each.weight == 0) {
      return fail(ErrorCode::invalid, "node {} has weight 0; leave it out or give it at least 1",
                  raw(each.node));
    }
    if (!seen.insert(each.node).second) {
      return fail(ErrorCode::invalid, "node {} is placed twice; give it one weight",
                  raw(each.node));
    }
  }
  return resolved;
}

}  // namespace headrace
