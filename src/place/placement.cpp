// SPDX-License-Identifier: Apache-2.0
#include "headrace/placement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <ranges>
#include <set>
#include <utility>

#include "core/fail.h"
#include "core/text/enum_words.h"
#include "place/near.h"
#include "place/ranked.h"

namespace headrace {
namespace {

constexpr EnumWords<Distribution::interleave> kDistributions{
    "distribution", {"nearest", "first_touch", "interleave"}};
constexpr EnumWords<PageSize::huge_1g> kPageSizes{"page size",
                                                  {"base", "transparent", "huge_2m", "huge_1g"}};

// The nodes whose CPUs will use the memory; empty: unknown.
using Initiators = std::vector<const Node*>;

// The nodes that contain any of the CPUs, the one with most first; without CPUs `near`.
Result<Initiators> initiators(const Machine& machine, const CpuSet& cpus,
                              std::optional<NodeId> near) {
  if (cpus.empty()) {
    if (!near) return Initiators{};
    HEADRACE_TRY(const Node* node, machine.node(*near));
    return Initiators{node};
  }
  const auto shared = [&](const Node* node) {
    return std::ranges::count_if(
        cpus, [&](unsigned cpu) { return std::ranges::binary_search(node->cpus, cpu); });
  };
  Initiators found;
  for (const Node& node : machine.nodes) {
    if (shared(&node) > 0) found.push_back(&node);
  }
  std::ranges::stable_sort(found, std::greater{}, shared);
  if (!found.empty()) return found;
  return fail(ErrorCode::absent, "none of CPUs {} is on a node of this machine; see headrace topo",
              to_string(cpus));
}

// The nearness to the nearest of `from`. Requires: !from.empty()
Nearness nearness(const Machine& machine, const Initiators& from, const Node& to) {
  Nearness best = headrace::nearness(machine, *from.front(), to);
  for (const Node* each : from) best = std::min(best, headrace::nearness(machine, *each, to));
  return best;
}

// All nodes of the kind that have memory; nearest to `from` first, if known.
Result<std::vector<const Node*>> nodes_of_kind(const Machine& machine, NodeKind kind,
                                               const Initiators& from) {
  std::vector<const Node*> nodes = machine.of_kind(kind);
  std::erase_if(nodes, [](const Node* node) { return node->capacity == Bytes{0}; });
  // GPUs that are NUMA nodes are memory like any other. GPUs that are not count only if no GPU is.
  if (kind == NodeKind::gpu && std::ranges::any_of(nodes, &Node::byte_addressable)) {
    std::erase_if(nodes, [](const Node* node) { return !node->byte_addressable(); });
  }
  if (nodes.empty()) {
    std::set<std::string_view> kinds;
    for (const Node& node : machine.nodes) kinds.insert(to_string(node.kind));
    if (kind == NodeKind::storage) {
      return fail(ErrorCode::absent,
                  "no storage node is known; discover the machine with a path on the device");
    }
    const std::string mode = kind == NodeKind::hbm ? cache_mode(machine) : "";
    if (!mode.empty()) {
      return fail(ErrorCode::absent, "no hbm node here, only {}; {}", fmt::join(kinds, ", "), mode);
    }
    return fail(ErrorCode::absent,
                "no {} node here, only {}; if one was not recognised set HEADRACE_NODES=ID={}",
                to_string(kind), fmt::join(kinds, ", "), to_string(kind));
  }
  if (!from.empty()) {
    std::ranges::sort(nodes, {}, [&](const Node* node) { return nearness(machine, from, *node); });
  }
  return nodes;
}

// The only node of the placement if it has this kind, or the first node of the kind if the
// placement names the kind.
const Node* alone_on(const Machine& machine, const Placement& placement, NodeKind kind) {
  if (placement.property || !placement.spill.empty()) return nullptr;
  if (placement.distribution != Distribution::nearest) return nullptr;
  const auto is_meant = [&](const Node& node) {
    if (node.kind != kind) return false;
    if (placement.kind) return placement.nodes.empty() && placement.kind == node.kind;
    return placement.nodes.size() == 1 && placement.nodes.front().node == node.id;
  };
  const auto found = std::ranges::find_if(machine.nodes, is_meant);
  return found == machine.nodes.end() ? nullptr : &*found;
}

// Checks that the node is CPU memory and not in `seen`, and adds it there.
Status check_node(const Machine& machine, NodeId id, std::set<NodeId>& seen) {
  HEADRACE_TRY(const Node* node, machine.node(id));
  if (!node->byte_addressable()) {
    const bool file = node->kind == NodeKind::storage;
    return fail(ErrorCode::unsupported, "node {} is {}, which {}; use another", raw(id),
                to_string(node->kind),
                file ? "holds only whole buffers, as files"
                     : "CPUs do not reach: it holds whole buffers that copies fill");
  }
  if (!seen.insert(id).second) {
    return fail(ErrorCode::invalid, "node {} is placed twice; give it one weight", raw(id));
  }
  return {};
}

Status check_weight(const NodeWeight& each) {
  if (each.weight >= 1 && each.weight <= kMaxWeight) return {};
  return fail(ErrorCode::invalid, "node {} has weight {}; give it 1 to {}, or leave it out",
              raw(each.node), each.weight, kMaxWeight);
}

Status check_strict(const Machine& machine, const Placement& placement) {
  if (!placement.strict || placement.spill.empty()) return {};
  std::set<NodeKind> kinds;
  for (const NodeWeight& each : placement.nodes) {
    if (const Node* node = machine.find(each.node)) kinds.insert(node->kind);
  }
  for (const NodeChoice& choice : placement.spill) {
    const auto* id = std::get_if<NodeId>(&choice);
    const Node* node = id == nullptr ? nullptr : machine.find(*id);
    if (node != nullptr && kinds.contains(node->kind)) continue;
    return fail(ErrorCode::invalid,
                "a strict placement does not spill to another kind; drop one of the two");
  }
  return {};
}

Status check_distribution(const Placement& placement) {
  if (placement.property && placement.distribution != Distribution::nearest) {
    return fail(
        ErrorCode::invalid,
        "a property is its best node, and nothing to deal pages over; give a kind or nodes");
  }
  if (placement.distribution != Distribution::first_touch) return {};
  const auto& nodes = placement.nodes;
  if (std::ranges::any_of(nodes, [&](auto& each) { return each.weight != nodes[0].weight; })) {
    return fail(ErrorCode::invalid,
                "pages placed by first touch have no weights; give nodes alone, or no first touch");
  }
  if (!placement.spill.empty()) {
    return fail(ErrorCode::invalid,
                "pages placed by first touch spill as the kernel says; leave out where to");
  }
  if (placement.lock || placement.pin) {
    return fail(ErrorCode::invalid,
                "what is locked or pinned is touched at once, so not placed by first touch; drop "
                "one of the two");
  }
  return {};
}

// True if memory may spill to any memory, also if `placement` is already resolved.
bool spills_anywhere(const Placement& placement) {
  if (placement.spill.empty()) return !placement.strict;
  return placement.anywhere && std::ranges::all_of(placement.spill, [&](const NodeChoice& choice) {
           const auto* id = std::get_if<NodeId>(&choice);
           return id != nullptr && std::ranges::count(placement.chosen, *id) > 0;
         });
}

// For each of `from` the nearest of `nodes`; several if they are equally near.
std::set<NodeId> nearest_to_each(const Machine& machine, const Initiators& from,
                                 const std::vector<const Node*>& nodes) {
  std::set<NodeId> nearest;
  for (const Node* each : from) {
    const auto near = [&](const Node* node) {
      Nearness found = nearness(machine, *each, *node);
      found.id = 0;
      return found;
    };
    const Nearness best = near(std::ranges::min(nodes, {}, near));
    for (const Node* node : nodes) {
      if (near(node) == best) nearest.insert(node->id);
    }
  }
  return nearest;
}

// Replaces placement.kind by its nodes. With Distribution::nearest: by the nearest, and `spill` by
// the others of the kind. Then follows all other memory, unless strict or with a stated spill
// order.
Status resolve_kind(const Machine& machine, const Initiators& from, Placement& placement) {
  HEADRACE_TRY(const auto nodes, nodes_of_kind(machine, *placement.kind, from));
  placement.kind.reset();
  const bool by_nearness = !from.empty() && placement.distribution == Distribution::nearest;
  std::set<NodeId> nearest;
  if (by_nearness) nearest = nearest_to_each(machine, from, nodes);
  std::vector<NodeChoice> farther;
  for (const Node* node : nodes) {
    if (!by_nearness || nearest.contains(node->id)) {
      placement.nodes.push_back({node->id, 1});
    } else {
      farther.emplace_back(node->id);
    }
  }
  const bool anywhere = !placement.strict && placement.spill.empty();
  if (anywhere && by_nearness) {
    std::vector<const Node*> others;
    for (const Node& node : machine.nodes) {
      const bool memory = node.byte_addressable() && node.capacity != Bytes{0};
      if (memory && std::ranges::count(nodes, &node) == 0) others.push_back(&node);
    }
    std::ranges::sort(others, {}, [&](const Node* node) { return nearness(machine, from, *node); });
    for (const Node* node : others) farther.emplace_back(node->id);
  }
  for (const NodeWeight& each : placement.nodes) placement.chosen.push_back(each.node);
  for (const NodeChoice& each : farther) placement.chosen.push_back(std::get<NodeId>(each));
  placement.spill.insert(placement.spill.begin(), farther.begin(), farther.end());
  return {};
}

// Replaces the kinds in placement.spill by their nodes, without nodes that the placement already
// names, in `nodes` or earlier in `spill`.
Status resolve_spill(const Machine& machine, const Initiators& from, Placement& placement) {
  std::vector<NodeChoice> resolved;
  for (const NodeChoice& choice : placement.spill) {
    if (std::holds_alternative<NodeId>(choice)) {
      resolved.push_back(choice);
      continue;
    }
    HEADRACE_TRY(const auto nodes, nodes_of_kind(machine, std::get<NodeKind>(choice), from));
    for (const Node* node : nodes) {
      const bool named = std::ranges::count(placement.nodes, node->id, &NodeWeight::node) > 0 ||
                         std::ranges::count(resolved, NodeChoice(node->id)) > 0;
      if (named) continue;
      resolved.emplace_back(node->id);
      placement.chosen.push_back(node->id);
    }
  }
  placement.spill = std::move(resolved);
  return {};
}

// Replaces placement.property by the best node. The other nodes become its `spill`, best first,
// unless strict or with a stated spill order.
Status resolve_property(const Machine& machine, const Initiators& from, Placement& placement) {
  const std::vector<const Node*> ranked =
      ranked_by(machine, *placement.property, from.empty() ? nullptr : from.front());
  if (ranked.empty()) {
    return fail(ErrorCode::absent, "no node of this machine has memory; see headrace topo");
  }
  placement.nodes = {{ranked.front()->id, 1}};
  if (placement.reason.empty()) {
    placement.reason = fmt::format("node {} ({}) is {}", raw(ranked.front()->id),
                                   to_string(ranked.front()->kind), to_string(*placement.property));
  }
  placement.property.reset();
  for (const Node* node : ranked) placement.chosen.push_back(node->id);
  if (placement.strict || !placement.spill.empty()) return {};
  for (const Node* node : ranked | std::views::drop(1)) placement.spill.emplace_back(node->id);
  return {};
}

}  // namespace

std::string_view to_string(Property property) { return kProperties.of(property); }

std::string_view to_string(Distribution distribution) { return kDistributions.of(distribution); }

std::string_view to_string(PageSize size) { return kPageSizes.of(size); }

Placement Placement::on(NodeId node) { return {.nodes = {{node, 1}}}; }

Placement Placement::on(NodeKind kind) { return {.kind = kind}; }

Placement Placement::on(Property property) { return {.property = property}; }

Placement Placement::interleave(const std::vector<NodeId>& nodes) {
  Placement placement;
  for (const NodeId node : nodes) placement.nodes.push_back({node, 1});
  return placement;
}

Placement Placement::interleave(NodeKind kind) {
  return {.kind = kind, .distribution = Distribution::interleave};
}

Placement Placement::weighted(std::vector<NodeWeight> nodes) { return {.nodes = std::move(nodes)}; }

const Node* storage_of(const Machine& machine, const Placement& placement) {
  return alone_on(machine, placement, NodeKind::storage);
}

const Node* gpu_of(const Machine& machine, const Placement& placement) {
  const bool numa = std::ranges::any_of(machine.nodes, [](const Node& node) {
    return node.kind == NodeKind::gpu && node.byte_addressable();
  });
  if (placement.kind && numa) return nullptr;
  const Node* const found = alone_on(machine, placement, NodeKind::gpu);
  return found == nullptr || found->byte_addressable() ? nullptr : found;
}

Result<Placement> resolve(const Machine& machine, const Placement& placement,
                          std::optional<NodeId> near) {
  const int targets =
      (placement.kind ? 1 : 0) + (placement.property ? 1 : 0) + (placement.nodes.empty() ? 0 : 1);
  if (targets > 1) {
    return fail(ErrorCode::invalid,
                "a placement has two of nodes, a kind and a property; give one");
  }
  if (targets == 0) {
    return fail(ErrorCode::invalid, "a placement without nodes; give nodes, a kind or a property");
  }
  HEADRACE_TRY_STATUS(check_strict(machine, placement));
  HEADRACE_TRY_STATUS(check_distribution(placement));
  Placement resolved = placement;
  resolved.anywhere = spills_anywhere(placement);
  HEADRACE_TRY(const Initiators from, initiators(machine, placement.near, near));
  if (placement.kind) HEADRACE_TRY_STATUS(resolve_kind(machine, from, resolved));
  if (placement.property) HEADRACE_TRY_STATUS(resolve_property(machine, from, resolved));
  HEADRACE_TRY_STATUS(resolve_spill(machine, from, resolved));
  std::set<NodeId> seen;
  for (const NodeWeight& each : resolved.nodes) {
    HEADRACE_TRY_STATUS(check_node(machine, each.node, seen));
    HEADRACE_TRY_STATUS(check_weight(each));
  }
  for (const NodeChoice& each : resolved.spill) {
    HEADRACE_TRY_STATUS(check_node(machine, std::get<NodeId>(each), seen));
  }
  return resolved;
}

Result<Placement> resolve_with_storage(const Machine& machine, const Placement& placement,
                                       std::optional<NodeId> near) {
  const Node* alone = storage_of(machine, placement);
  if (const Node* gpu = gpu_of(machine, placement); gpu != nullptr) {
    alone = gpu;
    if (placement.kind) {
      HEADRACE_TRY(const Initiators from, initiators(machine, placement.near, near));
      HEADRACE_TRY(const auto nodes, nodes_of_kind(machine, NodeKind::gpu, from));
      alone = nodes.front();
    }
  }
  if (alone == nullptr) return resolve(machine, placement, near);
  for (const NodeWeight& each : placement.nodes) HEADRACE_TRY_STATUS(check_weight(each));
  Placement resolved = placement;
  resolved.kind.reset();
  resolved.nodes = {{alone->id, 1}};
  return resolved;
}

}  // namespace headrace
