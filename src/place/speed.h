// SPDX-License-Identifier: Apache-2.0
// How fast nodes are, for those who compare them.
#pragma once

#include <functional>
#include <optional>

#include "headrace/machine.h"

namespace headrace {

// Speeds closer than this count as equal, as hwloc's memory tiers do: firmware rounds its figures
// and measurements scatter.
inline constexpr double kSpeedTolerance = 1.1;

// How good a node is, on one scale for all nodes compared, larger is better; nothing when that
// scale does not know.
using Scale = std::function<std::optional<double>(const Node&)>;

// Bandwidth read from the initiator, else from the node's best one; measured, or rated by firmware.
// Not copy rates: an engine may be slower than the memory at both its ends.
Scale by_bandwidth(std::optional<NodeId> initiator, bool measured);
// The inverse of the latency of a read, likewise.
Scale by_latency(std::optional<NodeId> initiator, bool measured);
// Where nothing is known but the kind: steps far enough apart that the tolerance keeps them apart.
std::optional<double> bandwidth_of_kind(const Node& node);
std::optional<double> latency_of_kind(const Node& node);

}  // namespace headrace
