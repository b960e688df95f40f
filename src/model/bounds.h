// SPDX-License-Identifier: Apache-2.0
// A model for a machine without one, from its rated figures: rates are upper bounds. Thread-safe.
#pragma once

#include "headrace/machine.h"
#include "model/ceilings.h"

namespace headrace {

// Ceilings from a machine's facts:
// - reads and writes of a node, apart: the largest bandwidth of its access attributes; those that
//   were measured have the basis "measured";
// - a link in each direction, and in both together;
// - an engine: its largest copy rate from each node.
MachineModel bounds_of(const Machine& machine);

// The latency in ns of an access without load: of the machine's access attributes, or by the
// node's kind and the links between, with the basis "assumed".
// Requires: both nodes exist.
IdleLatency latency_of(const Machine& machine, NodeId initiator, NodeId node);

}  // namespace headrace
