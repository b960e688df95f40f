// SPDX-License-Identifier: Apache-2.0
// One body, compiled by Highway once per vector width. backend/cpu/kernels_nt.cpp says which code
// is allowed between HWY_BEFORE_NAMESPACE and its end.
#include "measure/instruments/traffic/kernels_random.h"

#include <cstdint>

// SCALAR and EMU128 stand for the baseline of the whole build, which Highway demands as a target.
#if defined(__x86_64__)
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_AVX2 | HWY_AVX3))
#else
#define HWY_COMPILE_ONLY_STATIC
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/instruments/traffic/kernels_random.cpp"
#include <hwy/foreach_target.h>  // includes this file again for each target but the last
#include <hwy/highway.h>

#include "measure/instruments/traffic/store_around-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headrace::instruments::HWY_NAMESPACE {

template <bool kNonTemporal>
HWY_NOINLINE void scattered(const RandomPlaces& places) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Tag tag;
  const Vector pattern = hn::Set(tag, 0x5a);
  const auto* from = reinterpret_cast<const std::uint8_t*>(places.from);
  auto* to = reinterpret_cast<std::uint8_t*>(places.to);
  Vector sum = pattern;
  std::size_t read = places.first * places.reads;
  std::size_t written = places.first * places.writes;
  for (std::size_t round = places.count; round > 0; --round) {
    for (unsigned i = places.reads; i > 0; --i) {
      const std::uint8_t* block = from + place_of(read++, places.from_mask) * places.block;
      for (std::size_t at = 0; at < places.block; at += sizeof(Vector)) {
        sum = hn::Xor(sum, hn::Load(tag, block + at));
      }
    }
    for (unsigned i = places.writes; i > 0; --i) {
      std::uint8_t* block = to + place_of(written++, places.to_mask) * places.block;
      Vector held = pattern;
      for (std::size_t at = 0; at < places.block; at += sizeof(Vector)) {
        if constexpr (kNonTemporal) {
          store_around(pattern, held, block, at);
        } else {
          hn::Store(pattern, tag, block + at);
        }
      }
    }
  }
  // Makes the compiler treat the sum as used.
#if HWY_ARCH_X86
  __asm__ volatile("" : : "x"(sum.raw));
#else
  __asm__ volatile("" : : "w"(sum.raw));
#endif
}

[[maybe_unused]] constexpr RandomLoop kScattered[2] = {scattered<false>, scattered<true>};

}  // namespace headrace::instruments::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::instruments {

RandomLoop random_loop(bool non_temporal, [[maybe_unused]] unsigned bits) {
#if defined(__x86_64__)
  const auto& loops = bits == 512   ? N_AVX3::kScattered
                      : bits == 256 ? N_AVX2::kScattered
                                    : N_SSSE3::kScattered;
  return loops[non_temporal];
#else
  return HWY_NAMESPACE::kScattered[non_temporal];
#endif
}

}  // namespace headrace::instruments
#endif
