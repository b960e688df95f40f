// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cache/core.h"

namespace headrace {
namespace {

CacheStats::Percentiles percentiles(const Histogram& histogram) {
  return {.count = histogram.count(),
          .p50 = histogram.quantile(0.5),
          .p90 = histogram.quantile(0.9),
          .p99 = histogram.quantile(0.99)};
}

}  // namespace

CacheStats CacheCore::stats() const {
  CacheStats stats;
  if (!origin_.here()) return stats;
  {
    const MutexLock lock(mutex_);
    stats = {.hits = counts_.hits + readers_.hits(),
             .inflight_hits = counts_.inflight_hits,
             .misses = counts_.misses,
             .prefetched = counts_.prefetched,
             .first_uses = counts_.first_uses,
             .late = counts_.late,
             .wasted_bytes = {counts_.wasted_bytes},
             .evictions = counts_.evictions,
             .invalidations = counts_.invalidations,
             .failures = counts_.failures,
             .refusals = counts_.refusals,
             .bytes_pinned = {counts_.pinned_bytes + bytes_in_slots()},
             .blocks = index_.size()};
    for (const Node& node : nodes_) stats.bytes_used += Bytes{node.used};
  }
  stats.wait_time = percentiles(wait_time_);
  stats.copy_latency = percentiles(copy_latency_);
  return stats;
}

// What only slots pin, each block once.
std::uint64_t CacheCore::bytes_in_slots() const {
  std::vector<CacheEntry*> entries = readers_.pinned();
  std::ranges::sort(entries);
  const auto repeated = std::ranges::unique(entries);
  entries.erase(repeated.begin(), repeated.end());
  std::uint64_t bytes = 0;
  for (const CacheEntry* entry : entries) {
    if (entry->pins == 0 && entry->data != nullptr) bytes += entry->length;
  }
  return bytes;
}

void CacheCore::emit(CacheEvent::Kind kind, const Extent& extent, bool by_prefetch) noexcept {
  if (!options_.observer) return;
  options_.observer(
      {.kind = kind, .extent = extent, .time = mover_.clock().now(), .by_prefetch = by_prefetch});
}

}  // namespace headrace
