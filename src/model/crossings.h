// SPDX-License-Identifier: Apache-2.0
// The traffic of accesses at each ceiling of a model. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "headrace/machine.h"
#include "model/ceilings.h"
#include "model/solver.h"

namespace headrace {

// The initiator of accesses: CPUs of one group of a node, or an engine.
struct Initiator {
  NodeId node;
  std::optional<EngineId> engine = {};
  unsigned cpu_group = 0;
};

// Bytes per byte of progress of one access at a ceiling.
struct AccessCrossing {
  std::size_t ceiling = 0;
  double reads = 0;
  double writes = 0;
  double requests = 0;  // bytes that its requests count for, besides
};

class Crossings {
 public:
  Crossings(const Machine& machine, const MachineModel& model);

  // The group of a CPU: CPUs of one group match the same paths. Group 0: no path names them.
  unsigned group(unsigned cpu) const;

  // The ceilings that an access crosses, each once, in their order. `hits` and `dirty` are ignored
  // for a node without a memory-side cache.
  std::vector<AccessCrossing> of(const Initiator& initiator, const FlowAccess& access, double hits,
                                 double dirty) const;

  bool has_side_cache(NodeId node) const;

 private:
  const Machine& machine_;
  const MachineModel& model_;
  std::vector<unsigned> group_;               // by CPU
  std::vector<std::vector<bool>> membership_;  // by group: by number of a path with CPUs
  std::vector<std::vector<std::size_t>> path_number_;  // by ceiling and path; of those with CPUs
};

}  // namespace headrace
