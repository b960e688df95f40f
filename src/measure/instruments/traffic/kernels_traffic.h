// SPDX-License-Identifier: Apache-2.0
// The loops of memory traffic, for each width of vectors that this build has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "measure/instruments/traffic/traffic.h"

namespace headrace::instruments {

inline constexpr Mix kMixes[] = {
    {.name = "read", .reads = 1},
    {.name = "3:1", .reads = 3, .writes = 1},
    {.name = "2:1", .reads = 2, .writes = 1},
    {.name = "1:1", .reads = 1, .writes = 1},
    {.name = "write", .writes = 1},
    {.name = "nt_2:1", .reads = 2, .writes = 1, .non_temporal = true},
    {.name = "nt_1:1", .reads = 1, .writes = 1, .non_temporal = true},
    {.name = "nt_write", .writes = 1, .non_temporal = true},
    {.name = "copy", .reads = 1, .writes = 1, .copies = true},
    {.name = "nt_copy", .reads = 1, .writes = 1, .non_temporal = true, .copies = true},
};

// A loop's group is the mix so many times: small enough that the compiler makes straight code of it
// (16 vectors), large enough that the loop's own cost is nothing.
constexpr unsigned mixes_per_group(const Mix& mix) {
  return std::max(mix.reads, mix.writes) == 1 ? 4 : 1;
}

// Where a loop runs: `rounds` times a group of the first stream, then of the next, each `apart`
// bytes behind the one before.
struct LoopPlace {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t from_apart = 0;
  std::size_t to_apart = 0;
  std::size_t streams = 1;
  std::size_t rounds = 0;
  std::size_t ahead = 0;  // bytes; only for a loop that prefetches
  // Bytes of a group, for a loop that is not made for one mix.
  std::size_t read = 0;
  std::size_t written = 0;
};

// The loop of kMixes[mix] in vectors of `bits`, that prefetches what it reads or not. Requires, on
// x86-64: bits in {128, 256, 512}, which the CPU has; other CPUs have one width.
TrafficLoop traffic_loop(std::size_t mix, unsigned bits, bool prefetches);

// The same for any mix that copies nothing: LoopPlace says how many bytes a group reads and then
// writes, whole lines of each.
TrafficLoop block_loop(bool non_temporal, unsigned bits, bool prefetches);

// The widths of vectors that this CPU has and that there are loops for, the widest first.
std::span<const unsigned> vector_widths();

}  // namespace headrace::instruments
