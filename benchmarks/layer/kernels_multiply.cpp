// SPDX-License-Identifier: Apache-2.0
// One body, compiled by Highway once per vector width, as kernels_traffic.cpp.
#include "benchmarks/layer/kernels_multiply.h"

#include <cstddef>

#include "measure/instruments/traffic/kernels_traffic.h"

// SCALAR and EMU128 stand for the baseline of the whole build, which Highway demands as a target.
#if defined(__x86_64__)
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_AVX2 | HWY_AVX3))
#else
#define HWY_COMPILE_ONLY_STATIC
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/layer/kernels_multiply.cpp"
#include <hwy/foreach_target.h>  // includes this file again for each target but the last
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headrace::instruments::HWY_NAMESPACE {

using Floats = hwy::HWY_NAMESPACE::ScalableTag<float>;

// Enough parallel sums that none waits for its predecessor: two units, four cycles each.
constexpr std::size_t kSums = 8;

HWY_NOINLINE std::uint64_t multiply_loop(std::uint64_t operations) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Floats tag;
  // Converges to y / (1 - x) = 1: never infinite or subnormal.
  const auto x = hn::Set(tag, 0.75f);
  const auto y = hn::Set(tag, 0.25f);
  hn::Vec<Floats> sums[kSums];
  for (std::size_t i = 0; i < kSums; ++i) sums[i] = hn::Set(tag, static_cast<float>(i + 2));
  const std::uint64_t each = 2 * kSums * hn::Lanes(tag);
  std::uint64_t done = 0;
  for (; done < operations; done += each) {
    for (auto& sum : sums) {
      sum = hn::MulAdd(sum, x, y);
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR  // never run: it is no register width
      __asm__ volatile("" : "+m"(sum.raw));
#elif HWY_ARCH_X86
      __asm__ volatile("" : "+x"(sum.raw));
#else
      __asm__ volatile("" : "+w"(sum.raw));
#endif
    }
  }
  return done;
}

}  // namespace headrace::instruments::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::instruments {

std::uint64_t multiply(std::uint64_t operations) {
#if defined(__x86_64__)
  const unsigned bits = vector_widths().front();
  const auto loop = bits == 512   ? N_AVX3::multiply_loop
                    : bits == 256 ? N_AVX2::multiply_loop
                                  : N_SSSE3::multiply_loop;
  return loop(operations);
#else
  return HWY_NAMESPACE::multiply_loop(operations);
#endif
}

}  // namespace headrace::instruments
#endif
