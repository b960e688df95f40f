// SPDX-License-Identifier: Apache-2.0
// Decides when a point has enough mappings. Pure. Thread-safe.
//
// An interval for a fixed number of samples holds the median less often if sampling stops as soon
// as it is narrow. The intervals of statistics.h hold it at all looks together, so every stop keeps
// the 95 % (docs/design/intervals.md).
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "headrace/statistics.h"

namespace headrace::session {

// The numbers of mappings at which to look: where the interval drops one more sample on each side.
// Sampling ends at the last.
inline constexpr std::array<std::size_t, 4> kLooks = {kLeastForInterval, 10, 14, 18};

// The least number of mappings for a usable value: a budget is divided by it, and rows with fewer
// are flagged "few".
inline constexpr std::size_t kFewest = 3;

// Whether these mappings, in order of measuring, give an interval no wider than `width` of the
// median, or are the maximum.
bool is_certain(std::span<const double> values, double width);

}  // namespace headrace::session
