// SPDX-License-Identifier: Apache-2.0
// Checks whether the destination of a copy is in a cache, by timing a few loads of it.
//
// This is no guarantee: the check reads a few lines. It is right for buffers that are wholly hot or
// wholly cold. For a buffer in between, either answer costs little. Thread-safe.
#pragma once

#include <cstddef>

namespace headrace {

// Returns true if most of the sampled lines of [to, to + bytes) come from memory instead of a
// cache. Returns false if the CPU does not let the two be distinguished.
//
// Below 1 MiB the check costs a cache hit for a hot destination and two memory accesses for a cold
// one; above, up to five accesses. It reads one byte of each sampled line. On memory that was never
// touched, the read maps the shared zero page first. Measured, this cost is lost in the cost of the
// page faults that follow. Requires: bytes > 0.
bool looks_cold(const void* to, std::size_t bytes);

// Writes each line of the range back and drops it from all caches. On architectures other than
// x86-64 it has no effect and returns false.
bool flush_from_caches(const void* range, std::size_t bytes);

}  // namespace headrace
