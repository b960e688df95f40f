// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/teams.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/fail.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/alike.h"
#include "memory/memory.h"

namespace headrace::session {
namespace {

constexpr std::size_t kFewest = 2;  // threads of a part with a row of its own

// The memory of each kind nearest to a node: its distance, and whether it may be used.
std::string near_memory_of(const Scope& scope, NodeId home) {
  const Machine& machine = scope.machine;
  std::string text;
  for (const NodeKind kind : kinds_of_memory(machine)) {
    const auto near = memory_of(machine, {.cpus = {}, .homes = {home}}, kind, TeamMemory::near);
    if (!near) continue;
    const NodeId id = near->front();
    const bool may = std::ranges::find(scope.forbidden, id) == scope.forbidden.end();
    text += fmt::format(" {} {}{}", to_string(kind),
                        distance_of(machine, *machine.find(home), *machine.find(id)),
                        may ? "" : " forbidden");
  }
  return text;
}

// The key of similar teams: CPUs per kind of node, and the memory near them.
std::string shape_of(const Scope& scope, const Team& team) {
  std::map<NodeId, std::size_t> cpus;
  for (const NodeId home : team.homes) ++cpus[home];
  std::string shape;
  for (const auto& [id, count] : cpus) {
    shape += fmt::format("{} {}{};", to_string(scope.machine.find(id)->kind), count,
                         near_memory_of(scope, id));
  }
  return shape;
}

// Whether the session requests a parameter that only teams have.
bool asks_for_teams(const Scope& scope) {
  return std::ranges::any_of(std::array{kOn, kPlaced, kOrder}, [&](const Parameter& one) {
    return scope.asks(std::string(one.name));
  });
}

class Listing {
 public:
  explicit Listing(const Scope& scope)
      : scope_(scope),
        machine_(scope.machine),
        allowed_(usable_cpus()),
        fewest_(asks_for_teams(scope) ? 1 : kFewest) {}

  // Adds each part of this size; of similar ones only the first.
  void add(TeamPart part) {
    std::map<std::string, std::size_t> alike;  // index of the first of each shape
    CpuSet left = allowed_;
    while (!left.empty()) {
      const auto all =
          choose_team(machine_, allowed_, {.part = part, .cpu = left.front(), .siblings = true});
      if (!all) {  // on no node of the machine
        left.erase(left.begin());
        continue;
      }
      std::erase_if(left, [&](unsigned cpu) { return std::ranges::count(all->cpus, cpu) > 0; });
      if (seen_.contains(all->sorted())) continue;
      const std::string shape = shape_of(scope_, *all);
      const auto first = alike.find(shape);
      if (first != alike.end() && !scope_.asks("cpu_node")) {
        found_[first->second].stands_for.push_back("cpu_node=" + list_of(all->nodes()));
        continue;
      }
      const std::size_t before = found_.size();
      add_team(part, *all);
      if (found_.size() == before) continue;  // too few CPUs
      alike.emplace(shape, before);
      seen_.insert(all->sorted());
    }
  }

  std::vector<MeasuredTeam> take() { return std::move(found_); }

  // A node's CPUs have rows of their own.
  void pass_over_nodes() {
    for (const Node* node : nodes_with_cpus(machine_)) seen_.insert(usable_cpus(node));
  }

 private:
  void add_team(TeamPart part, const Team& all) {
    const unsigned cpu = all.cpus.front();
    if (part == TeamPart::core) {  // one thread of it has a row of the node
      if (all.cpus.size() >= fewest_) found_.push_back({.team = all, .part = part});
      return;
    }
    const auto cores = choose_team(machine_, allowed_, {.part = part, .cpu = cpu});
    if (!cores || cores->cpus.size() < fewest_) return;
    found_.push_back({.team = *cores, .part = part, .whole = true});
    if (all.cpus.size() > cores->cpus.size()) found_.push_back({.team = all, .part = part});
    const bool by_default = !scope_.budget && part == TeamPart::machine;
    if (part == TeamPart::cluster || (!by_default && !scope_.asks("order"))) return;
    for (const std::size_t count : thread_counts(cores->cpus.size())) {
      if (count < kFewest || count == cores->cpus.size()) continue;
      for (const TeamOrder order : {TeamOrder::close, TeamOrder::spread}) {
        auto some = choose_team(machine_, allowed_,
                                {.part = part, .cpu = cpu, .order = order, .count = count});
        if (some) found_.push_back({.team = *std::move(some), .part = part, .order = order});
      }
    }
  }

  const Scope& scope_;
  const Machine& machine_;
  const CpuSet allowed_;
  const std::size_t fewest_;
  std::set<CpuSet> seen_;
  std::vector<MeasuredTeam> found_;
};

}  // namespace

std::vector<MeasuredTeam> measured_teams(const Scope& scope) {
  Listing listing(scope);
  const std::vector<std::string> asked = scope.words(std::string(kOn.name));
  if (!asks_for_teams(scope)) listing.pass_over_nodes();
  // The largest first: on a machine with one socket, the socket is the machine.
  for (const TeamPart part :
       {TeamPart::machine, TeamPart::socket, TeamPart::cluster, TeamPart::core}) {
    if (asked.empty() || std::ranges::count(asked, to_string(part)) > 0) listing.add(part);
  }
  return listing.take();
}

void stand_for_team(Row& row, const Scope& scope, const Node& node) {
  if (row.cpus != to_string(usable_cpus(&node))) return;
  const std::vector<const Node*> all = nodes_with_cpus(scope.machine);
  const bool only_of_socket =
      node.socket && std::ranges::none_of(all, [&](const Node* other) {
        return other != &node && (!other->socket || other->socket == node.socket);
      });
  const TeamPart part = all.size() == 1 ? TeamPart::machine : TeamPart::socket;
  if (part == TeamPart::socket && !only_of_socket) return;
  row.stands_for.push_back(
      fmt::format("on={} placed={}", to_string(part), to_string(TeamMemory::near)));
}

std::optional<TeamNodes> team_nodes(const Machine& machine, const Team& team, NodeKind kind,
                                    TeamMemory how) {
  auto chosen = memory_of(machine, team, kind, how);
  if (!chosen) return std::nullopt;
  TeamNodes nodes{.how = how, .of_cpu = {}, .all = *chosen};
  std::ranges::sort(nodes.all);
  nodes.all.erase(std::ranges::unique(nodes.all).begin(), nodes.all.end());
  const bool unknown =
      std::ranges::any_of(nodes.all, [&](NodeId id) { return !machine.find(id)->capacity; });
  if (unknown || (how == TeamMemory::interleave && nodes.all.size() < 2)) return std::nullopt;
  if (how != TeamMemory::interleave) nodes.of_cpu = *std::move(chosen);
  return nodes;
}

std::vector<NodeKind> kinds_of_memory(const Machine& machine) {
  std::vector<NodeKind> kinds;
  for (const NodeKind kind : {NodeKind::dram, NodeKind::hbm, NodeKind::cxl, NodeKind::gpu}) {
    const bool there = std::ranges::any_of(memory_nodes(machine),
                                           [&](const Node* node) { return node->kind == kind; });
    if (there) kinds.push_back(kind);
  }
  return kinds;
}

std::string list_of(const std::vector<NodeId>& nodes) {
  CpuSet numbers;
  for (const NodeId id : nodes) numbers.push_back(raw(id));
  std::ranges::sort(numbers);
  return to_string(numbers);
}

Row team_row(Row row, const MeasuredTeam& measured, TeamMemory how) {
  row.parameters.emplace_back(kOn.name, std::string(to_string(measured.part)));
  row.parameters.emplace_back(kPlaced.name, std::string(to_string(how)));
  if (measured.order) {
    row.parameters.emplace_back(kOrder.name, std::string(to_string(*measured.order)));
  }
  row.cpus = to_string(measured.team.sorted());
  row.stands_for = measured.stands_for;
  return row;
}

std::vector<unsigned> spread_order(const Machine& machine, const Node& node) {
  const CpuSet cpus = usable_cpus(&node);
  auto team = choose_team(
      machine, cpus,
      {.part = TeamPart::node, .cpu = cpus.front(), .order = TeamOrder::spread, .siblings = true});
  // Not if a CPU is listed on two nodes.
  return team && team->cpus.size() == cpus.size() ? std::move(team->cpus) : cpus;
}

std::vector<unsigned> beside(const Machine& machine, unsigned observer,
                             const std::vector<unsigned>& order) {
  std::vector<unsigned> others;
  std::vector<unsigned> threads;
  for (const unsigned cpu : order) {
    if (cpu == observer) continue;
    (instruments::share_core(machine, observer, cpu) ? threads : others).push_back(cpu);
  }
  return others.empty() ? threads : others;
}

CpuSet first_of(const std::vector<unsigned>& order, std::size_t count) {
  CpuSet cpus(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
  std::ranges::sort(cpus);
  return cpus;
}

Bytes fit_team(Row& row, const Scope& scope, const TeamNodes& nodes, std::size_t threads,
               Bytes wanted) {
  // All parts together get the share of the limit that a buffer gets of one node.
  Bytes most = fitting({.capacity = scope.memory_limit}, wanted);
  for (const NodeId id : nodes.all) {
    // Interleaved pages are spread evenly over all nodes; otherwise a thread's part is on one node.
    const bool dealt = nodes.how == TeamMemory::interleave;
    const std::size_t users =
        dealt ? 1 : static_cast<std::size_t>(std::ranges::count(nodes.of_cpu, id));
    const std::size_t of = dealt ? nodes.all.size() : threads;
    const Bytes share = wanted * users / of;
    const Node& node = *scope.machine.find(id);
    const Bytes space = fitting(node, share);
    if (space < share) most = std::min(most, space * of / users);
    mark_side_cached(row, node, std::min(space, share));
  }
  if (most < wanted) row.add_flag("shrunk");
  return most;
}

Result<std::vector<std::span<std::byte>>> team_parts(BufferPool& buffers, const TeamNodes& nodes,
                                                     std::size_t cpus, std::size_t index,
                                                     Bytes bytes) {
  std::vector<std::span<std::byte>> parts;
  const std::size_t each = bytes.value / base_page().value * base_page().value;
  if (each == 0) {
    return fail(ErrorCode::exhausted, "memory is too small for {} threads", cpus);
  }
  if (nodes.how == TeamMemory::interleave) {
    const MemoryKey key{
        nodes.all.front(), PageSize::transparent, {nodes.all.begin() + 1, nodes.all.end()}};
    HEADRACE_TRY(const auto memory, buffers.get(key, index, Bytes{each * cpus}));
    for (std::size_t i = 0; i < cpus; ++i) parts.push_back(memory.subspan(i * each, each));
    return parts;
  }
  std::map<NodeId, std::span<std::byte>> left;  // remaining part of each node's buffer
  for (const NodeId id : nodes.all) {
    const auto users = static_cast<std::uint64_t>(std::ranges::count(nodes.of_cpu, id));
    HEADRACE_TRY(left[id], buffers.get({id, PageSize::transparent}, index, Bytes{each * users}));
  }
  for (const NodeId id : nodes.of_cpu) {
    parts.push_back(left[id].first(each));
    left[id] = left[id].subspan(each);
  }
  return parts;
}

}  // namespace headrace::session
