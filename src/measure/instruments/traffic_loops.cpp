// One body, compiled by Highway once for each width of vectors. See backend/cpu/kernels_nt.cpp for
// what may stand between HWY_BEFORE_NAMESPACE and its end.
#include "measure/instruments/traffic_loops.h"

#include <cstdint>

#include "measure/instruments/chase.h"

// SCALAR and EMU128 stand for what the whole build may use, which Highway wants among its targets.
#if defined(__x86_64__)
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_AVX2 | HWY_AVX3))
#else
#define HWY_COMPILE_ONLY_STATIC
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/instruments/traffic_loops.cpp"
#include <hwy/foreach_target.h>  // includes this file again for each target but the last
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headrace::instruments::HWY_NAMESPACE {

using Tag = hwy::HWY_NAMESPACE::ScalableTag<std::uint8_t>;
using Vector = hwy::HWY_NAMESPACE::Vec<Tag>;

// The compiler takes the vector for used.
HWY_INLINE void use(Vector v) {
#if HWY_ARCH_X86
  __asm__ volatile("" : : "x"(v.raw));
#else
  __asm__ volatile("" : : "w"(v.raw));
#endif
}

// The loop of kMixes[kMix] over whole groups.
template <std::size_t kMix>
HWY_NOINLINE void loop(const std::byte* from_bytes, std::byte* to_bytes, std::size_t groups) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr std::size_t kReads = kMixes[kMix].reads * mixes_per_group(kMixes[kMix]) * kLine;
  constexpr std::size_t kWrites = kMixes[kMix].writes * mixes_per_group(kMixes[kMix]) * kLine;
  const Tag tag;
  const auto* from = reinterpret_cast<const std::uint8_t*>(from_bytes);
  auto* to = reinterpret_cast<std::uint8_t*>(to_bytes);
  const Vector pattern = hn::Set(tag, 0x5a);
  Vector even = pattern;  // two sums, so that loads do not wait for each other's
  Vector odd = pattern;
  for (; groups > 0; --groups, from += kReads, to += kWrites) {
    for (std::size_t i = 0; i < kReads || i < kWrites; i += sizeof(Vector)) {
      Vector written = pattern;
      if (i < kReads) {
        const Vector read = hn::Load(tag, from + i);
        if constexpr (kMixes[kMix].copies) {
          written = read;
        } else {
          Vector& sum = i / sizeof(Vector) % 2 == 0 ? even : odd;
          sum = hn::Xor(sum, read);
        }
      }
      if (i >= kWrites) continue;
      if constexpr (kMixes[kMix].non_temporal) {
        hn::Stream(written, tag, to + i);
      } else {
        hn::Store(written, tag, to + i);
      }
    }
  }
  use(hn::Xor(even, odd));
}

constexpr TrafficKernel::Loop kLoops[] = {loop<0>, loop<1>, loop<2>, loop<3>, loop<4>,
                                          loop<5>, loop<6>, loop<7>, loop<8>, loop<9>};
static_assert(sizeof(kLoops) / sizeof(*kLoops) == sizeof(kMixes) / sizeof(*kMixes));

}  // namespace headrace::instruments::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::instruments {

TrafficKernel::Loop traffic_loop(std::size_t mix, [[maybe_unused]] unsigned bits) {
#if defined(__x86_64__)
  return (bits == 512 ? N_AVX3::kLoops : bits == 256 ? N_AVX2::kLoops : N_SSSE3::kLoops)[mix];
#else
  return HWY_NAMESPACE::kLoops[mix];
#endif
}

unsigned widest_vector_bits() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v4")) return 512;
  if (__builtin_cpu_supports("x86-64-v3")) return 256;
#endif
  return 128;
}

}  // namespace headrace::instruments
#endif
