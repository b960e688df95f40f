// SPDX-License-Identifier: Apache-2.0
// Memory-side caches (HBM in cache mode): the share of accesses that hit, and the traffic that
// hits and misses cause. Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "core/text/enum_words.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// A value with the ends of its interval.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;

  static constexpr Estimate exactly(double x) { return {x, x, x}; }
};

// The order of accesses to a working set.
enum class SideCachePattern : std::uint8_t {
  scan,    // again and again from the beginning to the end
  random,  // uniform, independent of each other
};
inline constexpr EnumWords<SideCachePattern::random> kSideCachePatterns{"pattern",
                                                                        {"scan", "random"}};

// The share of accesses that hit a direct-mapped cache, by `ratio` = working set / cache size.
// scan: high = contiguous physical memory: 1 up to ratio 1, (2 - r) / r up to 2, then 0;
// low = pages at random places: e^-r; both ends swap where the second is larger; value = their
// mean. random: min(1, 1 / r).
// Errors: invalid: the ratio is not above 0.
Result<Estimate> side_cache_hits(SideCachePattern pattern, double ratio);

// Bytes at a memory-side cache and at the memory behind it, per byte of demand.
struct SideCacheTraffic {
  double cache_reads = 0;
  double cache_writes = 0;
  double memory_reads = 0;
  double memory_writes = 0;
};

// `hits`: the share of accesses that hit; `dirty`: the share of evicted lines that were written.
// A read looks into the cache; a miss reads the memory and fills the cache; an evicted dirty line,
// which that look has read, is written to the memory. Intel's memory mode and KNL do so (assumed
// for Xeon Max). A write is a whole line: a miss evicts without a read of the memory.
SideCacheTraffic side_cache_reads(double hits, double dirty);
SideCacheTraffic side_cache_writes(double hits, double dirty);

}  // namespace headrace
