// The body of every streaming kernel, written once over the vector type.
//
// Included by exactly one kernels_*.cpp per instruction set, which first defines HEADRACE_TARGET
// (the instruction set, as a function attribute) and then a vector type V with
//   V::kBytes, V::load(const std::byte*) (unaligned), V::stream(std::byte*, Register) (aligned).
// Everything lies in an anonymous namespace and carries the attribute: code for a newer CPU cannot
// leak into functions the linker shares between files, as it would with per-file compiler flags.
//
// The head up to the first line boundary of the destination and the tail after the last go through
// memcpy; the lines between are written whole, each by stores that follow one another, so that a
// write-combining buffer is always filled and leaves as one burst.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "backend/cpu/kernels.h"

#define HEADRACE_INLINE HEADRACE_TARGET __attribute__((always_inline)) inline

namespace headrace {
namespace {

// How a kernel walks over its range. docs/design/copying-with-cores.md has the measurements.
struct Shape {
  // Parts of the range copied in turn. One core's hardware prefetchers follow several streams at
  // once and so keep more lines on the way than for one.
  std::size_t streams = 1;
  // Bytes copied from one stream before the next has its turn: long enough to write each stream's
  // lines as a burst. Multiple of kStep.
  std::size_t run = 0;
  // The source is prefetched so far ahead, past all cache levels but the first; 0: not at all.
  std::size_t ahead = 0;
};

inline constexpr std::size_t kLine = 64;         // bytes of a cache line on every x86-64
inline constexpr std::size_t kStep = 4 * kLine;  // loads in flight in one step: 8 AVX2 registers
// Distance of the streams: farther than a prefetcher reaches (a page), near enough that a copy of
// kStreamThreshold bytes still has several.
inline constexpr std::size_t kApart = 64 << 10;

// Loads one vector per index, then stores them.
template <class V, std::size_t... kIndex>
HEADRACE_INLINE void copy_vectors(std::byte* to, const std::byte* from,
                                  std::index_sequence<kIndex...>) {
  const typename V::Register held[] = {V::load(from + kIndex * V::kBytes)...};
  (V::stream(to + kIndex * V::kBytes, held[kIndex]), ...);
}

// Copies kBytes, whole lines; all loads come before all stores.
template <class V, std::size_t kBytes>
HEADRACE_INLINE void copy_lines(std::byte* to, const std::byte* from) {
  copy_vectors<V>(to, from, std::make_index_sequence<kBytes / V::kBytes>{});
}

// May point behind the source: a prefetch never faults.
HEADRACE_INLINE void prefetch(const std::byte* from, std::size_t ahead) {
  _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(from) + ahead),
               _MM_HINT_NTA);
}

// Copies `bytes`, whole lines, in one ascending stream.
template <class V, Shape kShape>
HEADRACE_INLINE void copy_run(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (; bytes >= kStep; bytes -= kStep, to += kStep, from += kStep) {
    if constexpr (kShape.ahead > 0) {
      for (std::size_t at = 0; at < kStep; at += kLine) prefetch(from, kShape.ahead + at);
    }
    copy_lines<V, kStep>(to, from);
  }
  for (; bytes > 0; bytes -= kLine, to += kLine, from += kLine) copy_lines<V, kLine>(to, from);
}

// Copies kShape.streams parts that lie `apart` bytes from each other, whole runs, in turn.
template <class V, Shape kShape>
HEADRACE_INLINE void copy_streams(std::byte* to, const std::byte* from, std::size_t apart) {
  for (std::size_t at = 0; at < apart; at += kShape.run) {
    for (std::size_t stream = 0; stream < kShape.streams; ++stream) {
      const std::size_t place = stream * apart + at;
      copy_run<V, kShape>(to + place, from + place, kShape.run);
    }
  }
}

// The kernel.
template <class V, Shape kShape>
HEADRACE_TARGET void nt_copy(void* to_address, const void* from_address, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(to_address);
  const auto* from = static_cast<const std::byte*>(from_address);
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
      const std::size_t apart = std::min(kApart, even);
      copy_streams<V, kShape>(to, from, apart);
      to += kShape.streams * apart;
      from += kShape.streams * apart;
      bytes -= kShape.streams * apart;
    }
  }
  const std::size_t lines = bytes / kLine * kLine;
  copy_run<V, kShape>(to, from, lines);
  std::memcpy(to + lines, from + lines, bytes - lines);
  // Non-temporal stores are weakly ordered: nobody may see a flag set after this copy before it.
  _mm_sfence();
}

// The shapes offered for every vector type.
inline constexpr Shape kPlain{};
inline constexpr Shape kAhead{.ahead = 512};
inline constexpr Shape kTwo{.streams = 2, .run = 256};
inline constexpr Shape kThree{.streams = 3, .run = 1024};
inline constexpr Shape kFour{.streams = 4, .run = 1024};

}  // namespace
}  // namespace headrace
