// SPDX-License-Identifier: Apache-2.0
// A store around the caches, for files that Highway compiles once per vector width. Such a file
// includes this header again each time.
#if defined(HEADRACE_STORE_AROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_STORE_AROUND_INL_H_
#undef HEADRACE_STORE_AROUND_INL_H_
#else
#define HEADRACE_STORE_AROUND_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace headrace::instruments::HWY_NAMESPACE {

using Tag = hwy::HWY_NAMESPACE::ScalableTag<std::uint8_t>;
using Vector = hwy::HWY_NAMESPACE::Vec<Tag>;

// Stores the vector at `at`, a multiple of its size. ARM's STNP, which Highway lacks, stores two:
// the first, in `held`, waits for the second. It is a hint; a CPU may treat it as a plain store.
HWY_INLINE void store_around(Vector v, [[maybe_unused]] Vector& held, std::uint8_t* to,
                             std::size_t at) {
#if HWY_ARCH_ARM
  if (at / sizeof(Vector) % 2 == 0) {
    held = v;
  } else {
    auto& pair = *reinterpret_cast<std::uint8_t(*)[2 * sizeof(Vector)]>(to + at - sizeof(Vector));
    __asm__ volatile("stnp %q1, %q2, %0" : "=Ump"(pair) : "w"(held.raw), "w"(v.raw));
  }
#else
  hwy::HWY_NAMESPACE::Stream(v, Tag(), to + at);
#endif
}

// Waits until such stores have left the core: they are weakly ordered.
HWY_INLINE void wait_for_stores() {
#if HWY_ARCH_X86
  _mm_sfence();
#elif HWY_ARCH_ARM
  __asm__ volatile("dsb ishst" ::: "memory");
#endif
}

}  // namespace headrace::instruments::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
