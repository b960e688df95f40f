// SPDX-License-Identifier: Apache-2.0
// A pointer chase: each load returns the address of the next, so the time per load is the latency
// of the line's location. Single-thread.
//
// The order decides the result. Lines are visited in random order inside a window, windows in
// random order, each line once per round: one cycle through the whole area. A window of one page is
// the textbook's advice against prefetchers and TLB misses. It measures a third of the latency on
// CPUs that prefetch the rest of a page. A window of the whole area includes TLB misses, unless
// pages are huge. So the window is a parameter, and printed.
//
// One thread may follow several chains at once. Loads of different chains do not wait for each
// other; the core then has one load in flight per chain, or as many as it can.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "headrace/random.h"
#include "headrace/units.h"

namespace headrace::instruments {

// The unit of a chase: a cache line of all known machines.
inline constexpr std::size_t kLine = 64;

// Writes a cycle through the whole lines of `area`, in windows of `window` bytes; 0, or more than
// the area: one window. Returns the start. Requires: at least two lines.
void* make_cycle(std::span<std::byte> area, Bytes window, Random& random);
// The line visited `index` loads after the first; reads indices stored in the lines, without
// walking. Requires: make_cycle() of this area; index below its number of lines.
void* line_of_cycle(std::span<const std::byte> area, std::size_t index);
// The index of a line of the cycle.
std::size_t index_in_cycle(const void* line);

// Writes all lines of `memory` back and drops them from every cache of the host, even from one that
// a virtual machine does not show. Returns the number of lines; 0: this CPU has no such user
// instruction.
std::size_t drop_from_caches(std::span<const std::byte> memory);

// Makes `steps` loads, rounded up to a multiple of kChaseUnroll; returns the end.
inline constexpr std::size_t kChaseUnroll = 16;
void* chase(void* at, std::size_t steps);

// A chase in steps of 4096 loads until `ticks` of a counter have passed, at most `most` loads.
struct TimedChase {
  void* end;
  std::size_t loads;
  std::uint64_t ticks;
  std::uint64_t fastest;  // of the fastest step, which nothing interrupted
};
TimedChase chase_for(void* at, std::uint64_t ticks, std::size_t most,
                     const std::function<std::uint64_t()>& counter);

// Numbers of chains that chase_together() has loops for; 1 is first.
inline constexpr std::array<std::size_t, 8> kChainCounts = {1, 2, 4, 8, 12, 16, 24, 32};
// Makes `steps` loads of each chain in turn; at[i] is then the end of chain i. Requires: the number
// of chains is in kChainCounts.
void chase_together(std::span<void*> at, std::size_t steps);

}  // namespace headrace::instruments
