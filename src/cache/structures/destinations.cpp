// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/destinations.h"

#include <sched.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "memory/memory.h"

namespace headrace {
namespace {

// Placement policies are asked for no greater length.
constexpr std::uint64_t kLongestAsked = std::uint64_t{1} << 62;

}  // namespace

Destinations::Destinations(const Machine& machine, const PlacementPolicy& policy,
                           std::vector<NodeId> nodes)
    : machine_(machine), policy_(policy), nodes_(std::move(nodes)) {
  CHECK(nodes_.size() <= kSpills);
  for (const auto& node : machine.nodes) {
    for (const unsigned cpu : node.cpus) {
      if (cpu >= node_of_cpu_.size()) node_of_cpu_.resize(cpu + 1);
      node_of_cpu_[cpu] = node.id;
    }
  }
}

std::optional<NodeId> Destinations::calling_node() const {
  const int cpu = sched_getcpu();
  if (cpu < 0 || static_cast<std::size_t>(cpu) >= node_of_cpu_.size()) return std::nullopt;
  return node_of_cpu_[static_cast<std::size_t>(cpu)];
}

// Asking a policy costs allocations. Policies are pure, so each is asked once for all lengths up to
// the same power of two.
Result<Destination> Destinations::first(const Extent& extent,
                                        std::optional<NodeId> initiator) const {
  if (!initiator) initiator = calling_node();
  const std::uint64_t bytes = std::bit_ceil(std::min(extent.length.value, kLongestAsked));
  const NodeId source = extent.object->node();
  const auto known = known_.find(source, initiator, bytes);
  if (known) return Destination{static_cast<std::uint16_t>(*known & ~kSpills), *known >= kSpills};
  HEADRACE_TRY(const auto nodes, all(extent, initiator));
  const Destination first{nodes.front(), nodes.size() > 1};
  known_.remember(source, initiator, bytes,
                  static_cast<std::uint16_t>(first.node | (first.spills ? kSpills : 0)));
  return first;
}

Result<std::vector<std::uint16_t>> Destinations::all(const Extent& extent,
                                                     std::optional<NodeId> initiator) const {
  if (!initiator) initiator = calling_node();
  const std::uint64_t bytes = std::bit_ceil(std::min(extent.length.value, kLongestAsked));
  // noexcept: policies must not throw, except without memory.
  const auto ask = [&]() noexcept -> Result<Placement> {
    try {
      return policy_(
          machine_,
          {.source = extent.object->node(), .bytes = Bytes{bytes}, .initiator = initiator});
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    }
  };
  HEADRACE_TRY(Placement placement, ask());
  std::vector<std::uint16_t> found;
  const auto add = [&](NodeId id) {
    const auto at = std::ranges::find(nodes_, id);
    const auto number = static_cast<std::uint16_t>(at - nodes_.begin());
    if (at != nodes_.end() && std::ranges::count(found, number) == 0) found.push_back(number);
  };
  const std::vector<NodeChoice> spill = std::exchange(placement.spill, {});
  if (placement.kind) {
    placement.distribution = Distribution::interleave;
    HEADRACE_TRY(placement, resolve_here(placement, initiator));
  }
  for (const NodeWeight& weight : placement.nodes) {
    if (found.empty()) add(weight.node);
  }
  if (found.empty()) {
    return fail(ErrorCode::absent,
                "no budget for the nodes of the placement; give them one in `budgets`, or another "
                "placement");
  }
  if (placement.strict) return found;
  for (const NodeChoice& choice : spill) {
    if (const auto* const id = std::get_if<NodeId>(&choice)) {
      add(*id);
      continue;
    }
    const auto kind = Placement::interleave(std::get<NodeKind>(choice));
    HEADRACE_TRY(const Placement nodes, resolve_here(kind, initiator));
    for (const NodeWeight& weight : nodes.nodes) add(weight.node);
  }
  return found;
}

// Like resolve(). For GPUs that are no NUMA nodes: the nearest, then the others with a budget.
Result<Placement> Destinations::resolve_here(const Placement& placement,
                                             std::optional<NodeId> initiator) const {
  Placement alone = placement;
  if (alone.kind == NodeKind::gpu) alone.distribution = Distribution::nearest;
  if (!gpu_of(machine_, alone)) return resolve(machine_, placement, initiator);
  HEADRACE_TRY(Placement resolved, resolve_with_storage(machine_, alone, initiator));
  for (const NodeId id : nodes_) {
    if (!machine_.find(id)->byte_addressable()) resolved.nodes.push_back({id, 1});
  }
  return resolved;
}

std::uint16_t Targets::next() {
  if (nodes_.empty()) {
    auto nodes = all_.all(extent_, initiator_);
    nodes_ = nodes ? *std::move(nodes) : std::vector{first_->node};
  }
  if (at_ + 1 >= nodes_.size()) return again();
  return nodes_[++at_];
}

}  // namespace headrace
