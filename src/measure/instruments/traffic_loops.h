// The loops of memory traffic, for each width of vectors that this build has.
#pragma once

#include <algorithm>
#include <cstddef>

#include "measure/instruments/traffic.h"

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

// The loop of kMixes[mix] in vectors of `bits`. Requires, on x86-64: bits in {128, 256, 512}, which
// the CPU has; other CPUs have one loop.
TrafficKernel::Loop traffic_loop(std::size_t mix, unsigned bits);

// The widest vectors that this CPU has and that there are loops for.
unsigned widest_vector_bits();

}  // namespace headrace::instruments
