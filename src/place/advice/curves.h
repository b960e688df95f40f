// SPDX-License-Identifier: Apache-2.0
// The loaded-latency curves that a profile has.
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
  bool few = false;     // mappings, of a point of it
  std::string between;  // the two mixes that it was interpolated between; empty: measured
};

struct LeftOut {
  NodeId node;
  std::string mixes;  // that it has
};

struct MemoryCurves {
  std::vector<MemoryCurve> found;  // in the order of nodes
  std::vector<LeftOut> left_out;   // memories under load, but not at this mix
};

// Nodes whose CPUs have curves of memories, and how many memories.
std::vector<std::pair<NodeId, std::size_t>> observers(const Profile& profile);

// Memories under load by the same CPUs that observe, at this mix. Bandwidth is the memory's. A mix
// that was not measured lies between two that were: at the same share of each one's best, latency
// and best are interpolated by what is written of the traffic. invalid: points that are none.
Result<MemoryCurves> memory_curves(const Profile& profile, NodeId cpu_node, std::string_view mix);

}  // namespace headrace
