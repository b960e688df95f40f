// SPDX-License-Identifier: Apache-2.0
// Cutting one move into shares on page boundaries.
#pragma once

#include <span>
#include <vector>

#include "headrace/route.h"

namespace headrace {

// Parts end on multiples of a base page, so that no page has two writers and O_DIRECT stays
// possible; only the last ends where the move does.
inline constexpr Bytes kShareUnit = 4_KiB;

// One part per engine, about as long as its share of `bytes`; parts that would be empty are left
// out, and what rounding leaves goes to the last. Requires: engines and shares of one size, not
// empty.
std::vector<RoutePart> cut(Bytes bytes, std::span<const EngineId> engines,
                           std::span<const Bytes> shares);

// The same with equal shares.
std::vector<RoutePart> cut_equally(Bytes bytes, std::span<const EngineId> engines);

}  // namespace headrace
