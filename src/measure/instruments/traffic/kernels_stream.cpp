// SPDX-License-Identifier: Apache-2.0
// One body, compiled by Highway once per vector width, as kernels_traffic.cpp.
#include "measure/instruments/traffic/kernels_stream.h"

#include "measure/instruments/chase.h"

// SCALAR and EMU128 stand for the baseline of the whole build, which Highway demands as a target.
#if defined(__x86_64__)
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_AVX2 | HWY_AVX3))
#else
#define HWY_COMPILE_ONLY_STATIC
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/instruments/traffic/kernels_stream.cpp"
#include <hwy/foreach_target.h>  // includes this file again for each target but the last
#include <hwy/highway.h>

#include "measure/instruments/traffic/store_around-inl.h"

#if HWY_TARGET != HWY_SCALAR  // it stands for no CPU
HWY_BEFORE_NAMESPACE();
namespace headrace::instruments::HWY_NAMESPACE {

using Doubles = hwy::HWY_NAMESPACE::ScalableTag<double>;

constexpr std::size_t kDoublesPerLine = kLine / sizeof(double);
// Elements loaded before any is stored: enough that the loop's own cost does not count.
constexpr std::size_t kStep = 4 * kDoublesPerLine;

template <StreamOperation kOperation>
HWY_INLINE double one(const double* from, const double* other, std::size_t i) {
  switch (kOperation) {
    case StreamOperation::copy: return from[i];
    case StreamOperation::scale: return kStreamScalar * from[i];
    case StreamOperation::add: return from[i] + other[i];
    case StreamOperation::triad: return from[i] + kStreamScalar * other[i];
  }
}

template <StreamOperation kOperation>
HWY_INLINE auto several(const double* from, const double* other, std::size_t i) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Doubles tag;
  const auto scalar = hn::Set(tag, kStreamScalar);
  const auto first = hn::LoadU(tag, from + i);
  if constexpr (kOperation == StreamOperation::copy) return first;
  if constexpr (kOperation == StreamOperation::scale) return hn::Mul(scalar, first);
  if constexpr (kOperation == StreamOperation::add)
    return hn::Add(first, hn::LoadU(tag, other + i));
  if constexpr (kOperation == StreamOperation::triad) {
    return hn::MulAdd(scalar, hn::LoadU(tag, other + i), first);
  }
}

template <StreamOperation kOperation, bool kAround>
HWY_NOINLINE void stream(double* to, const double* from, const double* other, std::size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr std::size_t kLanes = sizeof(Vector) / sizeof(double);
  std::size_t i = 0;
  for (; i < count && reinterpret_cast<std::uintptr_t>(to + i) % kLine != 0; ++i) {
    to[i] = one<kOperation>(from, other, i);
  }
  for (; i + kStep <= count; i += kStep) {
    Vector results[kStep / kLanes];
    for (std::size_t at = 0; at < kStep; at += kLanes) {
      results[at / kLanes] = hn::BitCast(Tag(), several<kOperation>(from, other, i + at));
    }
    auto* const bytes = reinterpret_cast<std::uint8_t*>(to + i);
    [[maybe_unused]] Vector held = results[0];
    for (std::size_t at = 0; at < kStep * sizeof(double); at += sizeof(Vector)) {
      if constexpr (kAround) {
        store_around(results[at / sizeof(Vector)], held, bytes, at);
      } else {
        hn::Store(results[at / sizeof(Vector)], Tag(), bytes + at);
      }
    }
  }
  for (; i < count; ++i) to[i] = one<kOperation>(from, other, i);
  if constexpr (kAround) wait_for_stores();
}

#define HEADRACE_STREAMS(around)                                                  \
  {stream<StreamOperation::copy, around>, stream<StreamOperation::scale, around>, \
   stream<StreamOperation::add, around>, stream<StreamOperation::triad, around>}
[[maybe_unused]] constexpr StreamLoop kStreams[2][4] = {HEADRACE_STREAMS(false),
                                                        HEADRACE_STREAMS(true)};
#undef HEADRACE_STREAMS

}  // namespace headrace::instruments::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace headrace::instruments {

StreamLoop stream_loop(StreamOperation operation, bool around, [[maybe_unused]] unsigned bits) {
  const auto at = static_cast<std::size_t>(operation);
#if defined(__x86_64__)
  const auto& loops = bits == 512   ? N_AVX3::kStreams
                      : bits == 256 ? N_AVX2::kStreams
                                    : N_SSSE3::kStreams;
  return loops[around][at];
#else
  return HWY_NAMESPACE::kStreams[around][at];
#endif
}

}  // namespace headrace::instruments
#endif
