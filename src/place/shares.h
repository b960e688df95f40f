// SPDX-License-Identifier: Apache-2.0
// Divides one move into shares at page boundaries.
#pragma once

#include <span>
#include <vector>

#include "headrace/route.h"

namespace headrace {

// Parts end at multiples of a base page, so no page has two writers, and O_DIRECT stays possible.
// Only the last part ends at the move's end.
inline constexpr Bytes kShareUnit = 4_KiB;

// One part per engine, about as long as its share of `bytes`. Empty parts are left out, and the
// rest from rounding is in the last part. Requires: as many engines as shares, not empty.
std::vector<RoutePart> cut(Bytes bytes, std::span<const EngineId> engines,
                           std::span<const Bytes> shares);

// The same with equal shares.
std::vector<RoutePart> cut_equally(Bytes bytes, std::span<const EngineId> engines);

}  // namespace headrace
