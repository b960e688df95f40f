// SPDX-License-Identifier: Apache-2.0
// Is the destination of a copy in a cache? Found out by timing a few loads of it.
//
// Not a guarantee: a look at a few lines, right for buffers that are wholly hot or wholly cold. For
// those in between either answer costs little. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// True if most of the looked-at lines of [to, to + bytes) come from memory rather than from a
// cache. False where that cannot be told. Below 1 MiB it costs a cache hit for a hot destination
// and two memory accesses for a cold one, above up to five. Reads one byte of each line: on memory
// never touched that maps the shared zero page first, which measured is lost in the cost of the
// page faults that follow.
// Requires: bytes > 0.
bool looks_cold(const void* to, std::size_t bytes);

// What the look goes by, in ticks of the time stamp counter.
struct LatencyScale {
  std::uint64_t near = 0;       // a load that hits the first-level cache, timing included
  std::uint64_t memory = 0;     // a load of a line just flushed
  std::uint64_t threshold = 0;  // longer is cold; 0: the two cannot be told apart
};

// Measured once, at the first call, in some tens of microseconds.
const LatencyScale& latency_scale();

// Writes every line of the range back and drops it from all caches. No effect on other
// architectures than x86-64. Returns false then.
bool flush_from_caches(const void* range, std::size_t bytes);

}  // namespace headrace
