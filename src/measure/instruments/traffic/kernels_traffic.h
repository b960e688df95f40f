// SPDX-License-Identifier: Apache-2.0
// The loops of memory traffic, for each vector width of this build.
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

// Repetitions of the mix in a loop's group: few enough that the compiler makes straight code of it
// (16 vectors), and enough that the loop's own cost does not count.
constexpr unsigned mixes_per_group(const Mix& mix) {
  return std::max(mix.reads, mix.writes) == 1 ? 4 : 1;
}

// Work of a loop: `rounds` times a group of each stream in turn. Streams are `from_apart` and
// `to_apart` bytes apart.
struct LoopPlace {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t from_apart = 0;
  std::size_t to_apart = 0;
  std::size_t streams = 1;
  std::size_t rounds = 0;
  std::size_t ahead = 0;  // bytes; only for a loop that prefetches
  // Bytes per group, for a loop that is not made for one mix.
  std::size_t read = 0;
  std::size_t written = 0;
};

// The loop of kMixes[mix] in vectors of `bits`, with or without prefetching its reads. Requires, on
// x86-64: bits in {128, 256, 512}, supported by the CPU; other CPUs have one width.
TrafficLoop traffic_loop(std::size_t mix, unsigned bits, bool prefetches);

// The same for any mix without copies: LoopPlace says how many bytes a group reads and then writes,
// in whole lines.
TrafficLoop block_loop(bool non_temporal, unsigned bits, bool prefetches);

// Vector widths that this CPU has and loops exist for, widest first.
std::span<const unsigned> vector_widths();

}  // namespace headrace::instruments
