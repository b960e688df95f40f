// SPDX-License-Identifier: Apache-2.0
// The counts of a cache (Cache::stats()), and its miss ratio by the budget. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/export.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// Counts since the cache was made.
struct CacheStats {
  std::uint64_t hits = 0;            // ready at access
  std::uint64_t inflight_hits = 0;   // in flight at access
  std::uint64_t misses = 0;          // copy started by the access, or refused
  std::uint64_t prefetched = 0;      // copies started by plans, of one or more extents each
  std::uint64_t first_uses = 0;      // prefetched copies used for the first time
  std::uint64_t late = 0;            // first uses before the copy was ready
  Bytes wasted_bytes;                // prefetched and dropped without a use
  std::uint64_t evictions = 0;       // blocks dropped for space, by flush(), clear(),
                                     // resize() or the end of a plan
  std::uint64_t promotions = 0;      // blocks moved to the first memory of a chain
  std::uint64_t demotions = 0;       // blocks moved to a further memory of a chain
  std::uint64_t invalidations = 0;   // blocks dropped by invalidate()
  std::uint64_t failures = 0;        // copies that failed
  std::uint64_t refusals = 0;        // no space, no placement, or held for writing: no copy
  std::uint64_t written_back = 0;    // write-backs that succeeded
  std::uint64_t write_failures = 0;  // write-backs that failed
  std::uint64_t slab_failures = 0;   // slabs that a node did not give: it has less than its budget
  Bytes bytes_dirty;                 // by changed blocks whose source is older
  Bytes bytes_used;                  // by copies now, on all nodes
  Bytes bytes_pinned;
  std::uint64_t blocks = 0;
  // In nanoseconds. Nothing if nothing was counted.
  struct Percentiles {
    std::uint64_t count = 0;
    std::optional<std::uint64_t> p50, p90, p99;
  };
  // First the accesses that name no tenant, then CacheOptions::tenants; empty if there are none.
  struct Tenant {
    std::string name;
    std::uint64_t hits = 0;       // of its accesses: ready, also blocks of other tenants
    std::uint64_t misses = 0;     // of its accesses: all others, also those in flight or refused
    std::uint64_t evictions = 0;  // of its blocks
    Bytes bytes_used;             // by its blocks
    Bytes bytes_pinned;           // of its blocks, by Blocks of whatever tenant
  };
  std::vector<Tenant> tenants;
  Percentiles wait_time;     // per handle that waited, until its copy was ready or had failed
  Percentiles copy_latency;  // from start to ready
};

// A point of a miss-ratio curve: LRU in a budget of that size would miss that share of the
// accesses.
struct CacheCurvePoint {
  Bytes budget;
  double misses = 1;
};

}  // namespace HEADRACE_API headrace
