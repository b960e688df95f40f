// SPDX-License-Identifier: Apache-2.0
// CacheStats and Percentiles.
#include "handles.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

void bind_cache_stats(nb::module_& m) {
  Record<CacheStats::Percentiles>(m, "Percentiles", "Nanoseconds; None when nothing was counted.")
      .field("count", &CacheStats::Percentiles::count, "Samples.")
      .field("p50", &CacheStats::Percentiles::p50, "Median.")
      .field("p90", &CacheStats::Percentiles::p90, "")
      .field("p99", &CacheStats::Percentiles::p99, "");
  Record<CacheStats>(m, "CacheStats", "Counts since the cache was made.")
      .field("hits", &CacheStats::hits, "The copy was ready at access.")
      .field("inflight_hits", &CacheStats::inflight_hits, "The copy was on its way at access.")
      .field("misses", &CacheStats::misses, "Copy started by the access, or refused.")
      .field("prefetched", &CacheStats::prefetched, "Copies started by a plan.")
      .field("first_uses", &CacheStats::first_uses, "Prefetched copies used for the first time.")
      .field("late", &CacheStats::late, "How many of those were not ready at that time.")
      .field("wasted_bytes", &CacheStats::wasted_bytes, "Prefetched and dropped without a use.")
      .field("evictions", &CacheStats::evictions, "Copies dropped to make space.")
      .field("invalidations", &CacheStats::invalidations, "Copies dropped by invalidate().")
      .field("failures", &CacheStats::failures, "Copies that failed.")
      .field("refusals", &CacheStats::refusals,
             "Got no copy: no space, or held for writing by others.")
      .field("written_back", &CacheStats::written_back, "Write-backs that succeeded.")
      .field("write_failures", &CacheStats::write_failures, "Write-backs that failed.")
      .field("bytes_dirty", &CacheStats::bytes_dirty, "Bytes newer than their source.")
      .field("bytes_used", &CacheStats::bytes_used, "Bytes of all copies now.")
      .field("bytes_pinned", &CacheStats::bytes_pinned, "Bytes held by blocks now.")
      .field("blocks", &CacheStats::blocks, "The number of copies now.")
      .field("wait_time", &CacheStats::wait_time, "Waiting times of the waits that had to wait.")
      .field("copy_latency", &CacheStats::copy_latency, "From start to ready.");
}

}  // namespace headrace::python
