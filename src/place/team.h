// SPDX-License-Identifier: Apache-2.0
// Which CPUs work on something together, in which order they are taken, and which memory each of
// them uses.
//
// A team is a part of a machine: a core, the CPUs that share a last-level cache, a node, a socket,
// all. Which of its CPUs a few threads get decides what they reach: on an EPYC with 8 cores behind
// each cache the first 8 CPUs share one link to memory, and 8 spread out have eight; the first two
// numbers may be threads of one core. Not the threads themselves, nor their binding.
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
  core,     // the threads of one core: CPUs with a first-level cache in common
  cluster,  // those of a node that share a last-level cache; where none is known the node
  node,
  socket,
  machine,
};
std::string_view to_string(TeamPart part);

enum class TeamOrder : std::uint8_t {
  close,   // neighbours one after the other: core by core, cache by cache, node by node
  spread,  // any first few as far apart as they can be: of each socket one, of each of their nodes,
           // of each of their caches, of each core, and only then its next thread
};
std::string_view to_string(TeamOrder order);

enum class TeamMemory : std::uint8_t {
  near,        // for each CPU that node of the kind which is nearest to it; of equals in turn
  interleave,  // all nodes of the kind in turn, for all CPUs
  far,         // for each CPU one of those that are farthest from it, each CPU's node another
};
std::string_view to_string(TeamMemory memory);

struct TeamChoice {
  TeamPart part = TeamPart::machine;
  std::optional<unsigned> cpu = {};  // one of the part's; nothing: the first that is allowed
  TeamOrder order = TeamOrder::close;
  bool siblings = false;                  // all threads of a core, not one of each
  std::optional<std::size_t> count = {};  // so many, the first in the order; nothing: all
};

struct Team {
  std::vector<unsigned> cpus;  // in their order
  std::vector<NodeId> homes;   // of each the node that it belongs to

  CpuSet sorted() const;
  std::vector<NodeId> nodes() const;  // that they belong to, ascending, each once
};

// Takes CPUs in `allowed` that are on a node of `machine`. absent: none of the part is; invalid:
// a count of 0 or of more than there are.
Result<Team> choose_team(const Machine& machine, const CpuSet& allowed, const TeamChoice& choice);

// The memory nodes of a team: that of each CPU, in the order of the team; interleaved: all of the
// kind, nearest to the first CPU first, instead. absent: no memory of the kind; of far memory: none
// is farther than another.
Result<std::vector<NodeId>> memory_of(const Machine& machine, const Team& team, NodeKind kind,
                                      TeamMemory memory);

}  // namespace headrace
