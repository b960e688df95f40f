// SPDX-License-Identifier: Apache-2.0
// A machine's nodes in order of a property.
#pragma once

#include <vector>

#include "core/text/enum_words.h"
#include "headrace/placement.h"

namespace headrace {

inline constexpr EnumWords<Property::largest> kProperties{
    "property", {"fastest", "lowest_latency", "highest_bandwidth", "largest"}};

// All nodes that CPUs can address and that have memory, best first, for the CPUs of `initiator`
// (nullptr: unknown). Values within kSpeedTolerance of the best remaining one are equal; the
// nearest of them comes next.
std::vector<const Node*> ranked_by(const Machine& machine, Property property,
                                   const Node* initiator);

}  // namespace headrace
