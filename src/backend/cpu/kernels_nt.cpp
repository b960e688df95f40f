// SPDX-License-Identifier: Apache-2.0
// The streaming kernels: one body, compiled by Highway once for each vector width.
//
// The head, up to the destination's first line boundary, and the tail, after its last one, use
// memcpy. The lines between are written as wholes by consecutive stores. So a write-combining
// buffer is always filled, and leaves as one burst.
//
// Between HWY_BEFORE_NAMESPACE and its end no template of the standard library is used: code for a
// newer CPU could get into functions that the linker shares between files.
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels.h"

#if defined(__x86_64__)

// SCALAR and EMU128 mean the baseline of the whole build, which Highway needs among its targets.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_AVX2 | HWY_AVX3))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels_nt.cpp"
#include <hwy/foreach_target.h>  // includes this file again for each target except the last
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headrace::HWY_NAMESPACE {

// The walk of a kernel over its range. docs/design/copying-with-cores.md has the measurements.
struct Shape {
  // Parts of the range that are copied in turn. One core's hardware prefetchers follow several
  // streams at once, and keep more lines in flight for them than for one stream.
  std::size_t streams = 1;
  // Bytes copied from one stream before the next has its turn, enough to write each stream's lines
  // as a burst. A multiple of kStep.
  std::size_t run = 0;
  // Distance at which the source is prefetched, into the first-level cache only; 0: no prefetch.
  std::size_t ahead = 0;
};

inline constexpr std::size_t kLine = 64;         // bytes of a cache line on every x86-64
inline constexpr std::size_t kStep = 4 * kLine;  // loads in flight in one step: 8 AVX2 registers
// Distance of the streams. A prefetcher reaches less (a page), and a copy of kStreamThreshold bytes
// still has several streams.
inline constexpr std::size_t kApart = 64 << 10;

using Tag = hwy::HWY_NAMESPACE::ScalableTag<std::uint8_t>;
using Vector = hwy::HWY_NAMESPACE::Vec<Tag>;

// Copies kBytes, which are whole lines. All loads come before all stores.
template <std::size_t kBytes>
HWY_INLINE void copy_lines(std::uint8_t* to, const std::uint8_t* from) {
  constexpr std::size_t kVectors = kBytes / sizeof(Vector);
  Vector held[kVectors];
  for (std::size_t i = 0; i < kVectors; ++i) {
    held[i] = hwy::HWY_NAMESPACE::LoadU(Tag(), from + i * sizeof(Vector));
  }
  for (std::size_t i = 0; i < kVectors; ++i) {
    hwy::HWY_NAMESPACE::Stream(held[i], Tag(), to + i * sizeof(Vector));
  }
}

// Copies `bytes`, which are whole lines, in one ascending stream.
template <Shape kShape>
HWY_INLINE void copy_run(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  for (; bytes >= kStep; bytes -= kStep, to += kStep, from += kStep) {
    if constexpr (kShape.ahead > 0) {
      for (std::size_t at = 0; at < kStep; at += kLine) {
        // May point beyond the source: a prefetch never faults.
        _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(from) +
                                                   kShape.ahead + at),
                     _MM_HINT_NTA);
      }
    }
    copy_lines<kStep>(to, from);
  }
  for (; bytes > 0; bytes -= kLine, to += kLine, from += kLine) copy_lines<kLine>(to, from);
}

// Copies kShape.streams parts in turn. They consist of whole runs and lie `apart` bytes from each
// other.
template <Shape kShape>
HWY_INLINE void copy_streams(std::uint8_t* to, const std::uint8_t* from, std::size_t apart) {
  for (std::size_t at = 0; at < apart; at += kShape.run) {
    for (std::size_t stream = 0; stream < kShape.streams; ++stream) {
      const std::size_t place = stream * apart + at;
      copy_run<kShape>(to + place, from + place, kShape.run);
    }
  }
}

// The kernel.
template <Shape kShape>
void nt_copy(void* to_address, const void* from_address, std::size_t bytes) {
  auto* to = static_cast<std::uint8_t*>(to_address);
  const auto* from = static_cast<const std::uint8_t*>(from_address);
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
  if (bytes < head + kLine) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  if constexpr (kShape.streams > 1) {
    while (bytes >= kShape.streams * kShape.run) {
      const std::size_t even = bytes / kShape.streams / kShape.run * kShape.run;
      const std::size_t apart = even < kApart ? even : kApart;
      copy_streams<kShape>(to, from, apart);
      to += kShape.streams * apart;
      from += kShape.streams * apart;
      bytes -= kShape.streams * apart;
    }
  }
  const std::size_t lines = bytes / kLine * kLine;
  copy_run<kShape>(to, from, lines);
  std::memcpy(to + lines, from + lines, bytes - lines);
  // Non-temporal stores are weakly ordered: without the fence a flag that is set after this copy
  // could be seen before it.
  _mm_sfence();
}

}  // namespace headrace::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace {

// The kernels of one width. Requires: Highway compiled the target.
#define HEADRACE_NT_KERNELS(name, target)                                               \
  static constexpr CopyKernel kernels[] = {                                             \
      {name "_nt", target::nt_copy<target::Shape{}>},                                   \
      {name "_nt_ahead", target::nt_copy<target::Shape{.ahead = 512}>},                 \
      {name "_nt_2streams", target::nt_copy<target::Shape{.streams = 2, .run = 256}>},  \
      {name "_nt_3streams", target::nt_copy<target::Shape{.streams = 3, .run = 1024}>}, \
      {name "_nt_4streams", target::nt_copy<target::Shape{.streams = 4, .run = 1024}>}, \
  };                                                                                    \
  return kernels

std::span<const CopyKernel> sse2_kernels() { HEADRACE_NT_KERNELS("sse2", N_SSSE3); }
std::span<const CopyKernel> avx2_kernels() { HEADRACE_NT_KERNELS("avx2", N_AVX2); }
std::span<const CopyKernel> avx512_kernels() { HEADRACE_NT_KERNELS("avx512", N_AVX3); }

}  // namespace headrace
#endif

#else

namespace headrace {

std::span<const CopyKernel> sse2_kernels() { return {}; }
std::span<const CopyKernel> avx2_kernels() { return {}; }
std::span<const CopyKernel> avx512_kernels() { return {}; }

}  // namespace headrace

#endif
