// SPDX-License-Identifier: Apache-2.0
// Copying memory with the calling core, faster than memcpy where that is possible.
//
// A plain store first reads the line it overwrites. For data that is not in the cache, non-temporal
// stores save that read, half of all a copying core reads; for data that is, they throw it out and
// lose. So copy_bytes looks: it times a few loads of the destination and takes non-temporal stores
// only when the lines turn out to be far away, or when the caller says so by a hint. Small copies
// go straight to memcpy.
//
// The kernel (SSE2, AVX2, AVX-512, by what the CPU has) is chosen by a race of some 25 ms at the
// first copy that streams, or by HEADRACE_COPY_KERNEL. docs/design/copying-with-cores.md has the
// reasons. Thread-safe. Not for overlapping ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "headrace/export.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// What is known about the destination of a copy.
enum class CopyHint : std::uint8_t {
  automatic,  // nothing: look, and never lose against memcpy
  keep,       // it will be used next by this core: leave it in the cache
  stream,     // it is cold and will be used later or elsewhere: go around the cache
};

std::string_view to_string(CopyHint hint);

// Below this size every copy is a memcpy: the non-temporal kernels do not pay.
inline constexpr std::size_t kStreamThreshold = 256 << 10;

// The part of copy_bytes above the threshold.
void copy_large(void* to, const void* from, std::size_t bytes, CopyHint hint);

// Copies `bytes` from `from` to `to`, which must not overlap. All stores are visible to other
// threads as after memcpy (the non-temporal kernels end with a fence).
inline void copy_bytes(void* to, const void* from, std::size_t bytes,
                       CopyHint hint = CopyHint::automatic) {
  if (bytes < kStreamThreshold) [[likely]] {
    std::memcpy(to, from, bytes);
  } else {
    copy_large(to, from, bytes, hint);
  }
}

// A way to copy around the cache that this CPU can run.
struct CopyKernel {
  std::string_view name;  // "movsb", "sse2_nt", "avx2_nt_3streams", "avx512_nt_ahead", ...
  void (*copy)(void* to, const void* from, std::size_t bytes);
};

// All kernels this CPU can run, for tests and benchmarks. Empty where none are written for it.
std::vector<CopyKernel> copy_kernels();
// The one the calibration chose for cold data; it may be memcpy itself, named "memcpy".
CopyKernel chosen_copy_kernel();

}  // namespace HEADRACE_API headrace
