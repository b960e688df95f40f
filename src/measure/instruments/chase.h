// A pointer chase: loads of which each gives the address of the next, so that the time per load is
// the latency of wherever the line is.
//
// The order decides what is measured. Lines are visited in random order inside a window, windows in
// random order, each line once per round: one cycle through all of the area. A window of one page
// is the textbook's advice against prefetchers and the TLB, and measures a third of the truth on
// CPUs that fetch the rest of a page by themselves; a window of the whole area measures the TLB
// too, unless its pages are huge. So the window is a parameter, and printed. Single-thread.
#pragma once

#include <cstddef>
#include <span>

#include "headrace/random.h"
#include "headrace/units.h"

namespace headrace::instruments {

// The unit of a chase: a cache line of the machines we know.
inline constexpr std::size_t kLine = 64;

// Writes a cycle through the first whole lines of `area`, in windows of `window` bytes; a window of
// 0 or larger than the area is all of it. Returns where to begin. Requires: two lines at least.
void* make_cycle(std::span<std::byte> area, Bytes window, Random& random);

// `steps` loads, rounded up to a multiple of kChaseUnroll; returns where it ended.
inline constexpr std::size_t kChaseUnroll = 16;
void* chase(void* at, std::size_t steps);

}  // namespace headrace::instruments
