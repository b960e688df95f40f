// SPDX-License-Identifier: Apache-2.0
#include "model/side_cache.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"

namespace headrace {

Result<Estimate> side_cache_hits(SideCachePattern pattern, double ratio) {
  if (!std::isfinite(ratio) || ratio <= 0) {
    return fail(ErrorCode::invalid, "a working set of {} times the cache; say a number above 0",
                ratio);
  }
  if (pattern == SideCachePattern::random) {
    return Estimate::exactly(std::min(1.0, 1 / ratio));
  }
  // Contiguous: with r between 1 and 2, the first r - 1 of the cache is shared by two parts of the
  // working set, which evict each other; the other 2 - r of it always hits.
  const double contiguous = std::clamp((2 - ratio) / ratio, 0.0, 1.0);
  // Random places: a page survives a cycle if no other page is at its place; the number of pages
  // there is Poisson-distributed with mean r.
  const double scattered = std::exp(-ratio);
  return Estimate{.value = (contiguous + scattered) / 2,
                  .low = std::min(contiguous, scattered),
                  .high = std::max(contiguous, scattered)};
}

SideCacheTraffic side_cache_reads(double hits, double dirty) {
  const double misses = 1 - hits;
  return {.cache_reads = 1,
          .cache_writes = misses,
          .memory_reads = misses,
          .memory_writes = misses * dirty};
}

SideCacheTraffic side_cache_writes(double hits, double dirty) {
  const double misses = 1 - hits;
  return {.cache_reads = misses * dirty,
          .cache_writes = 1,
          .memory_reads = 0,
          .memory_writes = misses * dirty};
}

}  // namespace headrace
