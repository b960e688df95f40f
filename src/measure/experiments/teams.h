// SPDX-License-Identifier: Apache-2.0
// The sets of CPUs that are measured as a whole besides those of each node: the threads of a core,
// the CPUs that share a cache, sockets, the machine; and the memory each CPU of them uses.
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

// The parameters by which rows of teams differ from those of a node's CPUs, which have none of
// them: which part of the machine, where the memory is ("near", "interleave", "far"), and, where
// not all CPUs of it work, in which order they were taken ("close", "spread").
inline constexpr Parameter kOn{"on", ParameterKind::word, false, true};
inline constexpr Parameter kPlaced{"placed", ParameterKind::word, false, true};
inline constexpr Parameter kOrder{"order", ParameterKind::word, false, true};

struct MeasuredTeam {
  Team team;
  TeamPart part = TeamPart::machine;
  std::optional<TeamOrder> order = {};  // nothing: all CPUs of the part, or one of each core
  // All cores of the part work, by one thread each.
  bool whole = false;
  // "cpu_node=4-7": those of alike parts, which are not measured.
  std::vector<std::string> stands_for = {};
};

// Sockets, caches within nodes, and cores of several threads: of alike ones, which have as many
// CPUs as far from memory of the same kinds that may be used, the first, unless the session names
// CPUs by their node; teams that a node's own rows already are not, unless the session asks for
// teams: then those asked for, of one thread too. In parts, in both orders: the machine where there
// is no budget, all where the session asks for an order.
std::vector<MeasuredTeam> measured_teams(const Scope& scope);
// Says of a row of all CPUs of a node, with all memory near them, which team it is: the node may be
// all that the machine has, or its socket (Row::stands_for).
void stand_for_team(Row& row, const Scope& scope, const Node& node);

// What a team's CPUs use of one kind of memory.
struct TeamNodes {
  TeamMemory how = TeamMemory::near;
  std::vector<NodeId> of_cpu;  // empty: interleaved
  std::vector<NodeId> all;     // ascending, each once
};
// Nothing where the machine has none so: no such kind, or none that is farther.
std::optional<TeamNodes> team_nodes(const Machine& machine, const Team& team, NodeKind kind,
                                    TeamMemory how);

// The kinds of memory that CPUs reach.
std::vector<NodeKind> kinds_of_memory(const Machine& machine);

// "0-3,8"
std::string list_of(const std::vector<NodeId>& nodes);

// A row of a team: the parameters of make_row, then those above; and its CPUs.
Row team_row(Row row, const MeasuredTeam& measured, TeamMemory how);

// The CPUs of a node in the order in which threads take them: spread over its caches, then its
// cores, second threads of cores last. Requires: it has some.
std::vector<unsigned> spread_order(const Machine& machine, const Node& node);
// Those of `order` beside a CPU that observes; threads of its core only where there is no other:
// two of a core disturb each other without any memory.
std::vector<unsigned> beside(const Machine& machine, unsigned observer,
                             const std::vector<unsigned>& order);
// The first so many, ascending.
CpuSet first_of(const std::vector<unsigned>& order, std::size_t count);

// How much of `wanted` bytes, in equal parts for each thread, its nodes have room for, and control
// groups for all of it (Scope::memory_limit); the flag "shrunk" where that is less.
Bytes fit_team(Row& row, const Scope& scope, const TeamNodes& nodes, std::size_t threads,
               Bytes wanted);

// A part of `bytes` for each CPU in memory of its node, or of all in turn; whole pages.
Result<std::vector<std::span<std::byte>>> team_parts(BufferPool& buffers, const TeamNodes& nodes,
                                                     std::size_t cpus, std::size_t index,
                                                     Bytes bytes);

}  // namespace headrace::session
