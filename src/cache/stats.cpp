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
    stats = {.hits = counts_.hits,
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
             .bytes_pinned = {counts_.pinned_bytes},
             .blocks = index_.size()};
    for (const Node& node : nodes_) stats.bytes_used += Bytes{node.used};
  }
  stats.wait_time = percentiles(wait_time_);
  stats.copy_latency = percentiles(copy_latency_);
  return stats;
}

void CacheCore::emit(CacheEvent::Kind kind, const Extent& extent, bool by_prefetch) noexcept {
  if (!options_.observer) return;
  options_.observer(
      {.kind = kind, .extent = extent, .time = mover_.clock().now(), .by_prefetch = by_prefetch});
}

}  // namespace headrace
