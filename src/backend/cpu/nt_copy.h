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

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headrace {
namespace {

inline constexpr std::size_t kLine = 64;    // bytes of a cache line on every x86-64
inline constexpr std::size_t kPage = 4096;  // base page; also the reach of hardware prefetchers

// Copies kLines whole lines; all loads come before all stores.
template <class V, unsigned kLines>
HEADRACE_TARGET inline void copy_lines(std::byte* to, const std::byte* from) {
  constexpr unsigned kVectors = kLines * kLine / V::kBytes;
  typename V::Register held[kVectors];
#pragma GCC unroll 16
  for (unsigned i = 0; i < kVectors; ++i) held[i] = V::load(from + i * V::kBytes);
#pragma GCC unroll 16
  for (unsigned i = 0; i < kVectors; ++i) V::stream(to + i * V::kBytes, held[i]);
}

// Copies `lines` lines in one ascending stream; kAhead > 0 prefetches the source that many bytes
// ahead, past every cache level but the first.
template <class V, unsigned kAhead>
HEADRACE_TARGET inline void copy_stream(std::byte* to, const std::byte* from, std::size_t lines) {
  constexpr unsigned kLines = 4;
  for (; lines >= kLines; lines -= kLines) {
    if constexpr (kAhead > 0) {
      for (unsigned i = 0; i < kLines; ++i) _mm_prefetch(from + kAhead + i * kLine, _MM_HINT_NTA);
    }
    copy_lines<V, kLines>(to, from);
    to += kLines * kLine;
    from += kLines * kLine;
  }
  for (; lines > 0; --lines, to += kLine, from += kLine) copy_lines<V, 1>(to, from);
}

// Copies kPages pages side by side: so many source streams keep as many prefetchers and banks busy.
template <class V, unsigned kPages, unsigned kAhead>
HEADRACE_TARGET inline void copy_pages(std::byte* to, const std::byte* from) {
  constexpr unsigned kLines = 2;
  for (std::size_t at = 0; at < kPage; at += kLines * kLine) {
#pragma GCC unroll 8
    for (unsigned page = 0; page < kPages; ++page) {
      if constexpr (kAhead > 0) {
        for (unsigned i = 0; i < kLines; ++i) {
          _mm_prefetch(from + page * kPage + at + kAhead + i * kLine, _MM_HINT_NTA);
        }
      }
      copy_lines<V, kLines>(to + page * kPage + at, from + page * kPage + at);
    }
  }
}

// The kernel: V vectors, kPages streams side by side, source prefetched kAhead bytes ahead.
template <class V, unsigned kPages, unsigned kAhead>
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
  if constexpr (kPages > 1) {
    for (; bytes >= kPages * kPage; bytes -= kPages * kPage) {
      copy_pages<V, kPages, kAhead>(to, from);
      to += kPages * kPage;
      from += kPages * kPage;
    }
  }
  const std::size_t lines = bytes / kLine;
  copy_stream<V, kAhead>(to, from, lines);
  std::memcpy(to + lines * kLine, from + lines * kLine, bytes % kLine);
  // Non-temporal stores are weakly ordered: nobody may see a flag set after this copy before it.
  _mm_sfence();
}

}  // namespace
}  // namespace headrace
