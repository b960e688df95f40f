// SPDX-License-Identifier: Apache-2.0
// One body, compiled by Highway once per vector width. backend/cpu/kernels_nt.cpp says which code
// is allowed between HWY_BEFORE_NAMESPACE and its end.
#include "measure/instruments/traffic/kernels_traffic.h"

#include <cstdint>

#include "measure/instruments/chase.h"

// SCALAR and EMU128 stand for the baseline of the whole build, which Highway demands as a target.
#if defined(__x86_64__)
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_AVX2 | HWY_AVX3))
#else
#define HWY_COMPILE_ONLY_STATIC
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/instruments/traffic/kernels_traffic.cpp"
#include <hwy/foreach_target.h>  // includes this file again for each target but the last
#include <hwy/highway.h>

#include "measure/instruments/traffic/store_around-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headrace::instruments::HWY_NAMESPACE {

// Makes the compiler treat the vector as used.
HWY_INLINE void use(Vector v) {
#if HWY_ARCH_X86
  __asm__ volatile("" : : "x"(v.raw));
#else
  __asm__ volatile("" : : "w"(v.raw));
#endif
}

// The loop of kMixes[kMix] over whole groups; the lines of a group are in flight together.
template <std::size_t kMix, bool kPrefetches>
HWY_NOINLINE void loop(const LoopPlace& place) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr std::size_t kReads = kMixes[kMix].reads * mixes_per_group(kMixes[kMix]) * kLine;
  constexpr std::size_t kWrites = kMixes[kMix].writes * mixes_per_group(kMixes[kMix]) * kLine;
  const Tag tag;
  const auto* from = reinterpret_cast<const std::uint8_t*>(place.from);
  auto* to = reinterpret_cast<std::uint8_t*>(place.to);
  const Vector pattern = hn::Set(tag, 0x5a);
  Vector even = pattern;  // two sums, so that loads do not wait for each other's
  Vector odd = pattern;
  for (std::size_t round = place.rounds; round > 0; --round, from += kReads, to += kWrites) {
    const std::uint8_t* source = from;
    std::uint8_t* target = to;
    for (std::size_t stream = place.streams; stream > 0; --stream) {
      if constexpr (kPrefetches) {
        // May point beyond the memory: a prefetch never faults.
        const std::uintptr_t next = reinterpret_cast<std::uintptr_t>(source) + place.ahead;
        for (std::size_t i = 0; i < kReads; i += kLine) {
          __builtin_prefetch(reinterpret_cast<const void*>(next + i), 0, 3);
        }
      }
      Vector held = pattern;
      for (std::size_t i = 0; i < kReads || i < kWrites; i += sizeof(Vector)) {
        Vector written = pattern;
        if (i < kReads) {
          const Vector read = hn::Load(tag, source + i);
          if constexpr (kMixes[kMix].copies) {
            written = read;
          } else {
            Vector& sum = i / sizeof(Vector) % 2 == 0 ? even : odd;
            sum = hn::Xor(sum, read);
          }
        }
        if (i >= kWrites) continue;
        if constexpr (kMixes[kMix].non_temporal) {
          store_around(written, held, target, i);
        } else {
          hn::Store(written, tag, target + i);
        }
      }
      source += place.from_apart;
      target += place.to_apart;
    }
  }
  use(hn::Xor(even, odd));
}

// The loop of any mix over whole groups: first the lines to read, then those to write.
template <bool kAround, bool kPrefetches>
HWY_NOINLINE void block_loop(const LoopPlace& place) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Tag tag;
  const auto* from = reinterpret_cast<const std::uint8_t*>(place.from);
  auto* to = reinterpret_cast<std::uint8_t*>(place.to);
  const Vector pattern = hn::Set(tag, 0x5a);
  Vector even = pattern;
  Vector odd = pattern;
  for (std::size_t round = place.rounds; round > 0; --round) {
    const std::uint8_t* source = from;
    std::uint8_t* target = to;
    for (std::size_t stream = place.streams; stream > 0; --stream) {
      for (std::size_t line = 0; line < place.read; line += kLine) {
        if constexpr (kPrefetches) {
          const std::uintptr_t next = reinterpret_cast<std::uintptr_t>(source) + place.ahead;
          __builtin_prefetch(reinterpret_cast<const void*>(next + line), 0, 3);
        }
        for (std::size_t i = 0; i < kLine; i += sizeof(Vector)) {
          Vector& sum = i / sizeof(Vector) % 2 == 0 ? even : odd;
          sum = hn::Xor(sum, hn::Load(tag, source + line + i));
        }
      }
      for (std::size_t line = 0; line < place.written; line += kLine) {
        Vector held = pattern;
        for (std::size_t i = 0; i < kLine; i += sizeof(Vector)) {
          if constexpr (kAround) {
            store_around(pattern, held, target + line, i);
          } else {
            hn::Store(pattern, tag, target + line + i);
          }
        }
      }
      source += place.from_apart;
      target += place.to_apart;
    }
    from += place.read;
    to += place.written;
  }
  use(hn::Xor(even, odd));
}

[[maybe_unused]] constexpr TrafficLoop kBlockLoops[2][2] = {
    {block_loop<false, false>, block_loop<false, true>},
    {block_loop<true, false>, block_loop<true, true>}};

#define HEADRACE_LOOPS(prefetches)                                                     \
  {loop<0, prefetches>, loop<1, prefetches>, loop<2, prefetches>, loop<3, prefetches>, \
   loop<4, prefetches>, loop<5, prefetches>, loop<6, prefetches>, loop<7, prefetches>, \
   loop<8, prefetches>, loop<9, prefetches>}
[[maybe_unused]] constexpr TrafficLoop kLoops[2][std::size(kMixes)] = {HEADRACE_LOOPS(false),
                                                                       HEADRACE_LOOPS(true)};
#undef HEADRACE_LOOPS

}  // namespace headrace::instruments::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::instruments {

TrafficLoop traffic_loop(std::size_t mix, [[maybe_unused]] unsigned bits, bool prefetches) {
#if defined(__x86_64__)
  const auto& loops = bits == 512 ? N_AVX3::kLoops : bits == 256 ? N_AVX2::kLoops : N_SSSE3::kLoops;
  return loops[prefetches][mix];
#else
  return HWY_NAMESPACE::kLoops[prefetches][mix];
#endif
}

TrafficLoop block_loop(bool non_temporal, [[maybe_unused]] unsigned bits, bool prefetches) {
#if defined(__x86_64__)
  const auto& loops = bits == 512   ? N_AVX3::kBlockLoops
                      : bits == 256 ? N_AVX2::kBlockLoops
                                    : N_SSSE3::kBlockLoops;
  return loops[non_temporal][prefetches];
#else
  return HWY_NAMESPACE::kBlockLoops[non_temporal][prefetches];
#endif
}

std::span<const unsigned> vector_widths() {
  static constexpr unsigned kWidths[] = {512, 256, 128};
  const std::span<const unsigned> all = kWidths;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v4")) return all;
  if (__builtin_cpu_supports("x86-64-v3")) return all.subspan(1);
#endif
  return all.subspan(2);
}

}  // namespace headrace::instruments
#endif
