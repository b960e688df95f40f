#include "backend/cpu/kernels.h"

#if defined(__x86_64__)

#define HEADRACE_TARGET __attribute__((target("sse2")))
#include "backend/cpu/nt_copy.h"

namespace headrace {
namespace {

struct Sse2 {
  using Register = __m128i;
  static constexpr std::size_t kBytes = 16;

  HEADRACE_INLINE static Register load(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  HEADRACE_INLINE static void stream(std::byte* to, Register value) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), value);
  }
};

constexpr CopyKernel kKernels[] = {
    {"sse2_nt", nt_copy<Sse2, kPlain>},         {"sse2_nt_ahead", nt_copy<Sse2, kAhead>},
    {"sse2_nt_2streams", nt_copy<Sse2, kTwo>},  {"sse2_nt_3streams", nt_copy<Sse2, kThree>},
    {"sse2_nt_4streams", nt_copy<Sse2, kFour>},
};

}  // namespace

std::span<const CopyKernel> sse2_kernels() { return kKernels; }

}  // namespace headrace

#else

namespace headrace {

std::span<const CopyKernel> sse2_kernels() { return {}; }

}  // namespace headrace

#endif
