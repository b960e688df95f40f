// SPDX-License-Identifier: Apache-2.0
// Scales that compare the speed of nodes, and a machine's nodes in order of a property.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/text/enum_words.h"
#include "headrace/placement.h"

namespace headrace {

inline constexpr EnumWords<Property::largest> kProperties{
    "property", {"fastest", "lowest_latency", "highest_bandwidth", "largest"}};

// Speeds within this factor count as equal, as in hwloc's memory tiers: firmware rounds its values,
// and measurements vary.
inline constexpr double kSpeedTolerance = 1.1;

// Rates a node on one scale for all compared nodes; larger is better. Nothing: unknown on this
// scale.
using Scale = std::function<std::optional<double>(const Node&)>;

// Read bandwidth from the initiator, else from the node's best one; measured, or rated by firmware.
// Not copy rates: an engine may be slower than the memory at both its ends.
Scale by_bandwidth(std::optional<NodeId> initiator, bool measured);
// The inverse of the latency of a read, likewise.
Scale by_latency(std::optional<NodeId> initiator, bool measured);
// If only the kind is known: values so far apart that the tolerance never makes them equal.
std::optional<double> bandwidth_of_kind(const Node& node);
std::optional<double> latency_of_kind(const Node& node);

// All nodes that CPUs can address and that have memory, best first, for the CPUs of `initiator`
// (nullptr: unknown). Values within kSpeedTolerance of the best remaining one are equal; the
// nearest of them comes next.
std::vector<const Node*> ranked_by(const Machine& machine, Property property,
                                   const Node* initiator);

}  // namespace headrace
