// SPDX-License-Identifier: Apache-2.0
// The loaded-latency curves in a profile.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/advice/interleave.h"

namespace headrace {

struct MemoryCurve {
  NodeId node;
  LoadedCurve curve;
  Basis basis = Basis::measured;
  std::string source;
  bool fitted = false;
  bool noisy = false;
  bool few = false;     // true: too few mappings for one of its points
  std::string between;  // the two mixes of an interpolation; empty: measured
};

struct LeftOut {
  NodeId node;
  std::string mixes;  // the mixes that it has
};

struct MemoryCurves {
  std::vector<MemoryCurve> found;  // in the order of nodes
  std::vector<LeftOut> left_out;   // memories under load without this mix
};

// Nodes whose CPUs have curves of memories, with the number of memories.
std::vector<std::pair<NodeId, std::size_t>> observers(const Profile& profile);

// Curves of memories under load by the observing CPUs, at this mix. Bandwidth is the memory's. A
// mix that was not measured is interpolated between two that were, by the share of writes in their
// traffic: latency and best at equal shares of each curve's best. Errors: invalid: points out of
// bounds.
Result<MemoryCurves> memory_curves(const Profile& profile, NodeId cpu_node, std::string_view mix);

}  // namespace headrace
