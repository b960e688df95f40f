// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/coldness.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "core/fork.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace headrace {

#if defined(__x86_64__)

namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kFewLooksBelow = 1 << 20;

// Returns the ticks of a load of one byte. The fences keep other work out of the interval.
std::uint64_t timed_load(const std::byte* at) {
  _mm_lfence();
  const std::uint64_t start = __rdtsc();
  _mm_lfence();
  (void)*static_cast<const volatile std::byte*>(at);
  _mm_lfence();
  return __rdtsc() - start;
}

// Prefetches another line of the same page, so that the page's TLB entry is present and the timed
// load shows the caches alone. With a page walk, a hit in the last-level cache takes nearly as long
// as a memory access (measured on a VM with nested paging).
void warm_translation(const std::byte* line) {
  constexpr std::uintptr_t kHalfPage = 2048;  // beyond the reach of adjacent-line prefetchers
  _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(line) ^ kHalfPage),
               _MM_HINT_T0);
}

bool has_clflushopt() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kBit = 1U << 23;  // CPUID.(7,0):EBX, Intel SDM vol. 2, CPUID
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kBit) != 0;
}

__attribute__((target("clflushopt"))) void flush_weakly_ordered(const std::byte* at,
                                                                const std::byte* end) {
  for (; at < end; at += kLine) _mm_clflushopt(const_cast<std::byte*>(at));
}

void flush_in_order(const std::byte* at, const std::byte* end) {
  for (; at < end; at += kLine) _mm_clflush(at);
}

// The ticks between a load that hits a cache and one from memory; 0: they cannot be distinguished.
// Takes some tens of microseconds.
std::uint64_t measure_threshold() {
  // A line in each of 64 pages, at changing offsets. The pages fit in the first-level TLB of every
  // x86-64 since 2010, and lie too far apart for any prefetcher.
  constexpr std::size_t kLines = 64;
  constexpr std::size_t kStride = 4096 + kLine;
  const auto memory = std::make_unique<std::byte[]>(kLines * kStride);
  std::array<std::uint64_t, kLines> near{};
  std::array<std::uint64_t, kLines> far{};
  for (std::size_t i = 0; i < kLines; ++i) {
    const std::byte* line = memory.get() + i * kStride;
    (void)timed_load(line);
    near[i] = timed_load(line);
  }
  flush_from_caches(memory.get(), kLines * kStride);
  for (std::size_t i = 0; i < kLines; ++i) {
    // An odd multiplier visits all lines in an order that no stride prefetcher predicts.
    far[i] = timed_load(memory.get() + (i * 37 % kLines) * kStride);
  }
  // The lower quartile, because disturbance only adds time.
  std::ranges::nth_element(near, near.begin() + kLines / 4);
  std::ranges::nth_element(far, far.begin() + kLines / 4);
  const std::uint64_t hit = near[kLines / 4];
  const std::uint64_t memory_access = far[kLines / 4];
  // The middle. A load from a last-level cache takes a quarter to a third of a memory access, and a
  // load from busier or farther memory more than this one.
  return memory_access >= 2 * hit ? (hit + memory_access) / 2 : 0;
}

const bool kWeaklyOrdered = has_clflushopt();
MadeOnce<std::uint64_t> host_threshold(kRankOfScale);

}  // namespace

bool flush_from_caches(const void* range, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(range);
  const auto* end = at + bytes;
  at -= reinterpret_cast<std::uintptr_t>(at) % kLine;
  kWeaklyOrdered ? flush_weakly_ordered(at, end) : flush_in_order(at, end);
  _mm_mfence();
  return true;
}

bool looks_cold(const void* to, std::size_t bytes) {
  const std::uint64_t threshold = host_threshold.get(measure_threshold);
  if (threshold == 0) return false;
  // The number of looks that must agree. A hot copy of 256 KiB takes some 6 us, of which one look
  // of 35 ns is affordable. A wrong answer for a hot destination is worse than for a cold one:
  // streaming makes the destination cold, and the next look sees that. So cold needs two looks.
  // Larger copies can afford a majority.
  const bool small = bytes < kFewLooksBelow;
  const int enough_hot = small ? 1 : 3;
  const int enough_cold = small ? 2 : 3;
  constexpr int kMost = 5;
  // The places depend on the time stamp counter, so that a repeated copy does not look at the lines
  // that its last look brought near. Multiplicative hashing by 2^64 / golden ratio (Knuth, vol. 3,
  // 6.4) spreads them over the range.
  std::array<const std::byte*, kMost> lines{};
  std::uint64_t place = __rdtsc() | 1;
  for (int i = 0; i < enough_hot + enough_cold - 1; ++i) {
    place *= 0x9E3779B97F4A7C15U;
    lines[static_cast<std::size_t>(i)] = static_cast<const std::byte*>(to) + (place >> 32) % bytes;
    warm_translation(lines[static_cast<std::size_t>(i)]);
  }
  int cold = 0;
  int hot = 0;
  while (cold < enough_cold && hot < enough_hot) {
    (timed_load(lines[static_cast<std::size_t>(cold + hot)]) > threshold ? cold : hot) += 1;
  }
  return cold == enough_cold;
}

#else

bool flush_from_caches(const void*, std::size_t) { return false; }

bool looks_cold(const void*, std::size_t) { return false; }

#endif

}  // namespace headrace
