// SPDX-License-Identifier: Apache-2.0
// Measures the cost of a source with a clock, on memory that the source can track. Single-thread.
#pragma once

#include <functional>
#include <span>

#include "headrace/clock.h"
#include "headrace/tier/hotness.h"

namespace headrace {

// Begins to track `memory` and leaves it tracked. `write` writes once to each of its pages. Errors:
// those of the source.
Result<HotnessCost> timed_cost(HotnessSource& source, std::span<const std::byte> memory,
                               std::size_t pages, const std::function<void()>& write,
                               const Clock& clock);

}  // namespace headrace
