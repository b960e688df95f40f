// SPDX-License-Identifier: Apache-2.0
// The counts of a cache.
#include "handles.h"
#include "types.h"

namespace headrace::python {

void bind_cache_stats(nb::module_& m) {
  Record<CacheStats::Percentiles>(m, "Percentiles",
                                  "Percentiles in nanoseconds; None when nothing was counted.")
      .field("count", &CacheStats::Percentiles::count, "Samples.")
      .field("p50", &CacheStats::Percentiles::p50, "Median.")
      .field("p90", &CacheStats::Percentiles::p90, "")
      .field("p99", &CacheStats::Percentiles::p99, "");
  Record<CacheStats::Tenant>(m, "CacheTenantStats", "Counts of one tenant of a cache.")
      .field("name", &CacheStats::Tenant::name, "Empty: accesses that name none.")
      .field("hits", &CacheStats::Tenant::hits, "Accesses that found a copy ready.")
      .field("misses", &CacheStats::Tenant::misses, "All its other accesses.")
      .field("evictions", &CacheStats::Tenant::evictions, "Copies of its own dropped for space.")
      .field("bytes_used", &CacheStats::Tenant::bytes_used, "Bytes of its copies now.")
      .field("bytes_pinned", &CacheStats::Tenant::bytes_pinned, "Bytes of those that are held.");
  Record<CacheStats>(m, "CacheStats", "Counts since the cache was made.")
      .field("hits", &CacheStats::hits, "The copy was ready at access.")
      .field("inflight_hits", &CacheStats::inflight_hits, "The copy was on its way at access.")
      .field("misses", &CacheStats::misses, "Copy started by the access, or refused.")
      .field("prefetched", &CacheStats::prefetched, "Copies started by a plan.")
      .field("first_uses", &CacheStats::first_uses, "Prefetched copies used for the first time.")
      .field("late", &CacheStats::late, "First uses that found the prefetched copy not ready.")
      .field("wasted_bytes", &CacheStats::wasted_bytes, "Prefetched and dropped without a use.")
      .field("evictions", &CacheStats::evictions, "Copies dropped to make space.")
      .field("promotions", &CacheStats::promotions, "Moved to the first memory of a chain.")
      .field("demotions", &CacheStats::demotions, "Moved to a further memory of a chain.")
      .field("invalidations", &CacheStats::invalidations, "Copies dropped by invalidate().")
      .field("failures", &CacheStats::failures, "Copies that failed.")
      .field("refusals", &CacheStats::refusals,
             "Accesses without a copy: no space, or another block holds the bytes for writing.")
      .field("written_back", &CacheStats::written_back, "Write-backs that succeeded.")
      .field("write_failures", &CacheStats::write_failures, "Write-backs that failed.")
      .field("slab_failures", &CacheStats::slab_failures,
             "Slabs that a node did not give: it has less than its budget.")
      .field("bytes_dirty", &CacheStats::bytes_dirty, "Bytes newer than their source.")
      .field("bytes_used", &CacheStats::bytes_used, "Bytes of all copies now.")
      .field("bytes_pinned", &CacheStats::bytes_pinned, "Bytes held by blocks now.")
      .field("blocks", &CacheStats::blocks, "The number of copies now.")
      .field("tenants", &CacheStats::tenants, "First accesses without one; empty: none.")
      .field("wait_time", &CacheStats::wait_time, "Waiting times of the waits that had to wait.")
      .field("copy_latency", &CacheStats::copy_latency, "From start to ready.");
}

}  // namespace headrace::python
