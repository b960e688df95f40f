// SPDX-License-Identifier: Apache-2.0
// Sets of CPUs that are measured as a whole, beside those of each node: the threads of a core, CPUs
// that share a cache, sockets, the machine; and the memory that each of their CPUs uses.
// Single-thread.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure/session/experiment.h"
#include "place/place.h"

namespace headrace::session {

// Parameters that only rows of teams have: the part of the machine; where the memory is ("near",
// "interleave", "far"); and if only some of the CPUs work, the order in which they were taken
// ("close", "spread").
inline constexpr Parameter kOn{"on", ParameterKind::word, false, true};
inline constexpr Parameter kPlaced{"placed", ParameterKind::word, false, true};
inline constexpr Parameter kOrder{"order", ParameterKind::word, false, true};

struct MeasuredTeam {
  Team team;
  TeamPart part = TeamPart::machine;
  std::optional<TeamOrder> order = {};  // nullopt: all CPUs of the part, or one per core
  // One thread works on each core of the part.
  bool whole = false;
  // "cpu_node=4-7": similar parts, which are not measured.
  std::vector<std::string> stands_for = {};
};

// The teams to measure: sockets, caches within nodes, and cores of several threads.
// - Of similar parts only the first, unless the session selects CPUs by node. Similar parts have as
//   many CPUs, at the same distance from usable memory of the same kinds.
// - Teams that equal a node's own rows only if the session selects teams. Then all selected ones,
//   also of one thread.
// - A part of the CPUs in both orders: for the machine without a budget; for all parts if the
//   session selects an order.
std::vector<MeasuredTeam> measured_teams(const Scope& scope);
// Records in a row of all CPUs of a node, with memory near them, which team it also is: the node
// may be the whole machine, or a socket (Row::stands_for).
void stand_for_team(Row& row, const Scope& scope, const Node& node);

// The memory nodes of one kind that a team's CPUs use.
struct TeamNodes {
  TeamMemory how = TeamMemory::near;
  std::vector<NodeId> of_cpu;  // empty: interleaved
  std::vector<NodeId> all;     // ascending, each once
};
// nullopt: the machine has no such kind, or none that is farther.
std::optional<TeamNodes> team_nodes(const Machine& machine, const Team& team, NodeKind kind,
                                    TeamMemory how);

// The kinds of memory that CPUs reach.
std::vector<NodeKind> kinds_of_memory(const Machine& machine);

// "0-3,8"
std::string list_of(const std::vector<NodeId>& nodes);

// A row of a team: the parameters of make_row, then those above, and its CPUs.
Row team_row(Row row, const MeasuredTeam& measured, TeamMemory how);

// The CPUs of a node in the order in which threads take them: spread over its caches, then over its
// cores, second threads of cores last. Requires: it has CPUs.
std::vector<unsigned> spread_order(const Machine& machine, const Node& node);
// The CPUs of `order` that may work beside an observing CPU. Threads of the observer's core only if
// there is no other: two threads of a core disturb each other even without memory accesses.
std::vector<unsigned> beside(const Machine& machine, unsigned observer,
                             const std::vector<unsigned>& order);
// The first `count`, ascending.
CpuSet first_of(const std::vector<unsigned>& order, std::size_t count);

// How much of `wanted` bytes fits, in equal parts per thread, on its nodes and within the control
// groups' limit (Scope::memory_limit). Sets the flag "shrunk" if it is less.
Bytes fit_team(Row& row, const Scope& scope, const TeamNodes& nodes, std::size_t threads,
               Bytes wanted);

// One part per CPU, on its own node, or interleaved over all nodes; whole pages in total `bytes`.
Result<std::vector<std::span<std::byte>>> team_parts(BufferPool& buffers, const TeamNodes& nodes,
                                                     std::size_t cpus, std::size_t index,
                                                     Bytes bytes);

}  // namespace headrace::session
