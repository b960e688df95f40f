// SPDX-License-Identifier: Apache-2.0
// The nodes of a machine in order of a property.
#pragma once

#include <vector>

#include "headrace/placement.h"

namespace headrace {

// All nodes that hold CPU memory, the best first, for the CPUs of `initiator` (nullptr: unknown).
// Values within kSpeedTolerance of the best one left are equal; of those the nearest comes next.
std::vector<const Node*> ranked_by(const Machine& machine, Property property,
                                   const Node* initiator);

}  // namespace headrace
