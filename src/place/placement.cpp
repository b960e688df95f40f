#include "headrace/placement.h"

#include <algorithm>

#include "core/check.h"
#include "core/fail.h"

namespace headrace {
namespace {

// How fast a kind is when nothing else is known; smaller is faster.
int rank(NodeKind kind) {
  switch (kind) {
    case NodeKind::hbm: return 0;
    case NodeKind::dram: return 1;
    case NodeKind::cxl: return 2;
    case NodeKind::gpu: return 3;
    case NodeKind::storage: return 4;
  }
  CHECK(false);
  return 0;
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
  for (NodeId node : nodes) placement.nodes.push_back({node, 1});
  return placement;
}

Placement Placement::weighted(std::vector<NodeWeight> nodes) { return {.nodes = std::move(nodes)}; }

Result<Placement> resolve(const Machine& machine, const Placement& placement,
                          std::optional<NodeId> near) {
  Placement resolved = placement;
  if (placement.kind) {
    resolved.kind.reset();
    resolved.nodes.clear();
    for (const Node* node : machine.of_kind(*placement.kind)) resolved.nodes.push_back({node->id});
    (void)near;
  }
  if (resolved.nodes.empty()) return fail(ErrorCode::absent, "no node of this kind");
  for (const NodeWeight& each : resolved.nodes) {
    HEADRACE_TRY(const Node* node, machine.node(each.node));
    if (!node->byte_addressable()) {
      return fail(ErrorCode::unsupported, "node {} is {}, not memory", raw(each.node),
                  to_string(node->kind));
    }
  }
  return resolved;
}

namespace place {

Result<Placement> nearest_fast(const Machine& machine, const PlacementRequest& request) {
  HEADRACE_TRY(const Node* source, machine.node(request.source));
  const Node* best = nullptr;
  for (const Node& node : machine.nodes) {
    if (!node.byte_addressable() || rank(node.kind) >= rank(source->kind)) continue;
    if (best == nullptr || rank(node.kind) < rank(best->kind)) best = &node;
  }
  if (best == nullptr)
    return fail(ErrorCode::absent, "no node is faster than node {}", raw(request.source));
  return Placement::on(best->id);
}

PlacementPolicy always(NodeId node) {
  return [node](const Machine& machine, const PlacementRequest&) {
    return resolve(machine, Placement::on(node));
  };
}

}  // namespace place
}  // namespace headrace
