// SPDX-License-Identifier: Apache-2.0
// The cost of a source, timed by a clock on memory that it can track. Single-thread.
#pragma once

#include <functional>
#include <span>

#include "headrace/clock.h"
#include "headrace/tier/hotness.h"

namespace headrace {

// `write` writes once to each of the pages. Tracks the memory, and leaves it tracked. The errors of
// the source.
Result<HotnessCost> timed_cost(HotnessSource& source, std::span<const std::byte> memory,
                               std::size_t pages, const std::function<void()>& write,
                               const Clock& clock);

}  // namespace headrace
