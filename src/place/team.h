// SPDX-License-Identifier: Apache-2.0
// The CPUs that work on something together, their order, and the memory that each of them uses.
//
// A team is a part of a machine: a core, the CPUs that share a last-level cache, a node, a socket,
// or all. The choice of CPUs for a few threads decides their speed. On an EPYC with 8 cores per
// cache, the first 8 CPUs share one link to memory, and 8 CPUs spread out have eight links. The
// first two numbers may be threads of one core. A team neither starts nor binds threads.
//
// Pure functions of a Machine, which may be another host's. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace {

enum class TeamPart : std::uint8_t {
  core,     // the threads of one core: CPUs with a common first-level cache
  cluster,  // the CPUs of a node that share a last-level cache; if unknown, the node
  node,
  socket,
  machine,
};
std::string_view to_string(TeamPart part);

enum class TeamOrder : std::uint8_t {
  close,  // neighbours after each other: core by core, cache by cache, node by node
  // Any first few are as far apart as possible: one per socket, then per node, per cache, per core,
  // and only then the next thread of a core.
  spread,
};
std::string_view to_string(TeamOrder order);

enum class TeamMemory : std::uint8_t {
  near,        // for each CPU the nearest node of the kind; equally near nodes in turn
  interleave,  // all nodes of the kind in turn, for all CPUs
  far,         // for each CPU one of the farthest nodes, a different one for each CPU's node
};
std::string_view to_string(TeamMemory memory);

struct TeamChoice {
  TeamPart part = TeamPart::machine;
  std::optional<unsigned> cpu = {};  // a CPU of the part; nothing: the first allowed one
  TeamOrder order = TeamOrder::close;
  bool siblings = false;                  // true: all threads of a core; false: one of each
  std::optional<std::size_t> count = {};  // take the first `count` in the order; nothing: all
};

struct Team {
  std::vector<unsigned> cpus;  // in the team's order
  std::vector<NodeId> homes;   // the node of each CPU

  CpuSet sorted() const;
  std::vector<NodeId> nodes() const;  // the homes in ascending order, each once
};

// Takes CPUs in `allowed` that are on a node of `machine`. Errors: absent: no CPU of the part;
// invalid: a count of 0, or above the number of CPUs.
Result<Team> choose_team(const Machine& machine, const CpuSet& allowed, const TeamChoice& choice);

// The memory node of each CPU, in the team's order. Interleaved: all nodes of the kind instead,
// nearest to the first CPU first. Errors: absent: no memory of the kind; for far memory: all nodes
// are equally far.
Result<std::vector<NodeId>> memory_of(const Machine& machine, const Team& team, NodeKind kind,
                                      TeamMemory memory);

}  // namespace headrace
