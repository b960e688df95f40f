// SPDX-License-Identifier: Apache-2.0
// When a point has been measured often enough.
//
// Stopping as soon as an interval is narrow lowers the chance that it holds the median, if it is
// the interval of a fixed number of samples. Those of statistics.h hold it at all looks together,
// so that whatever one stops at keeps its 95 % (docs/design/intervals.md). Pure. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "headrace/statistics.h"

namespace headrace::session {

// The numbers of mappings at which it is asked whether they are enough: where the interval leaves
// one more sample out on each side. The last ends it.
inline constexpr std::array<std::size_t, 4> kLooks = {kLeastForInterval, 10, 14, 18};

// The first few are there to see a number at all: what a budget is divided by, and what a row must
// have that is not flagged "few".
inline constexpr std::size_t kFewest = 3;

// Whether so many mappings, in the order of measuring, are enough for an interval no wider than
// `width` of the median, or are the most.
bool is_certain(std::span<const double> values, double width);

}  // namespace headrace::session
