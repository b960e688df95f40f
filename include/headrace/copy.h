// SPDX-License-Identifier: Apache-2.0
// Copies memory with the calling core, faster than memcpy where possible.
//
// A plain store first reads the line it overwrites. Non-temporal stores save that read, half of a
// copying core's reads, but evict the line from the cache and lose if it was cached. So copy_bytes
// times a few loads of the destination. It uses non-temporal stores only if the lines turn out to
// be uncached, or if the caller's hint says so. Copies below kStreamThreshold are plain memcpy.
//
// The kernel (SSE2, AVX2, AVX-512, as far as the CPU has it) is chosen by a race of about 25 ms at
// the first streaming copy, or by HEADRACE_COPY_KERNEL. Reasons: docs/design/copying-with-cores.md.
// Thread-safe. Ranges must not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "headrace/export.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// The caller's knowledge about the destination of a copy.
enum class CopyHint : std::uint8_t {
  automatic,  // nothing is known: test the destination, never lose against memcpy
  keep,       // this core uses it next: leave it in the cache
  stream,     // it is uncached, and used later or elsewhere: bypass the cache
};

std::string_view to_string(CopyHint hint);

// Copies below this size are a memcpy: non-temporal kernels do not pay.
inline constexpr std::size_t kStreamThreshold = 256 << 10;

// copy_bytes from kStreamThreshold on.
void copy_large(void* to, const void* from, std::size_t bytes, CopyHint hint);

// Copies `bytes` from `from` to `to`, which must not overlap. Stores are visible to other threads
// as after memcpy: the non-temporal kernels end with a fence.
inline void copy_bytes(void* to, const void* from, std::size_t bytes,
                       CopyHint hint = CopyHint::automatic) {
  if (bytes < kStreamThreshold) [[likely]] {
    std::memcpy(to, from, bytes);
  } else {
    copy_large(to, from, bytes, hint);
  }
}

// A cache-bypassing copy loop that this CPU can run.
struct CopyKernel {
  std::string_view name;  // "movsb", "sse2_nt", "avx2_nt_3streams", "avx512_nt_ahead", ...
  void (*copy)(void* to, const void* from, std::size_t bytes);
};

// All kernels that this CPU can run, for tests and benchmarks. Empty: none for this architecture.
std::vector<CopyKernel> copy_kernels();
// The kernel that calibration chose for uncached data. It may be memcpy itself, named "memcpy".
CopyKernel chosen_copy_kernel();

}  // namespace HEADRACE_API headrace
