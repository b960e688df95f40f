// SPDX-License-Identifier: Apache-2.0
// A pointer chase: loads of which each gives the address of the next, so that the time per load is
// the latency of wherever the line is.
//
// The order decides what is measured. Lines are visited in random order inside a window, windows in
// random order, each line once per round: one cycle through all of the area. A window of one page
// is the textbook's advice against prefetchers and the TLB, and measures a third of the truth on
// CPUs that fetch the rest of a page by themselves; a window of the whole area measures the TLB
// too, unless its pages are huge. So the window is a parameter, and printed.
//
// Several chains at once in one thread: loads of different chains do not wait for each other, so
// that the core has as many under way as there are chains, or as many as it can. Single-thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "headrace/random.h"
#include "headrace/units.h"

namespace headrace::instruments {

// The unit of a chase: a cache line of the machines we know.
inline constexpr std::size_t kLine = 64;

// Writes a cycle through the first whole lines of `area`, in windows of `window` bytes; a window of
// 0 or larger than the area is all of it. Returns where to begin. Requires: two lines at least.
void* make_cycle(std::span<std::byte> area, Bytes window, Random& random);
// The line that is visited `index` loads after the first one; the lines tell, nobody walks there.
// Requires: make_cycle() of the same area; index below its number of lines.
void* line_of_cycle(std::span<const std::byte> area, std::size_t index);
// The index of a line of the cycle.
std::size_t index_in_cycle(const void* line);

// Writes all lines of `memory` back and drops them from every cache of the host, also from one that
// a virtual machine does not show. Returns the number of lines; 0: this CPU has no such instruction
// for programs.
std::size_t drop_from_caches(std::span<const std::byte> memory);

// `steps` loads, rounded up to a multiple of kChaseUnroll; returns where it ended.
inline constexpr std::size_t kChaseUnroll = 16;
void* chase(void* at, std::size_t steps);

// A chase in steps of 4096 loads until `ticks` of a counter have passed, at most `most` loads.
struct TimedChase {
  void* end;
  std::size_t loads;
  std::uint64_t ticks;
  std::uint64_t fastest;  // ticks of its fastest step, which nothing interrupted
};
TimedChase chase_for(void* at, std::uint64_t ticks, std::size_t most,
                     const std::function<std::uint64_t()>& counter);

// Numbers of chains that chase_together() has loops for, 1 first.
inline constexpr std::array<std::size_t, 8> kChainCounts = {1, 2, 4, 8, 12, 16, 24, 32};
// `steps` loads of each chain in turn; at[i] is then where chain i ended. Requires: as many chains
// as one of kChainCounts.
void chase_together(std::span<void*> at, std::size_t steps);

}  // namespace headrace::instruments
