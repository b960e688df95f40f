#include "backend/cpu/kernels.h"

#if defined(__x86_64__)
#define HEADRACE_TARGET __attribute__((target("sse2")))
#include "backend/cpu/nt_copy.h"

namespace headrace {
namespace {

struct Sse2 {
  using Register = __m128i;
  static constexpr unsigned kBytes = 16;
  HEADRACE_TARGET static Register load(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  HEADRACE_TARGET static void stream(std::byte* to, Register value) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), value);
  }
};

constexpr CopyKernel kKernels[] = {
    {"sse2_nt", nt_copy<Sse2, 1, 0>},
    {"sse2_nt_ahead", nt_copy<Sse2, 1, 1024>},
    {"sse2_nt_2pages", nt_copy<Sse2, 2, 0>},
    {"sse2_nt_4pages", nt_copy<Sse2, 4, 0>},
};

}  // namespace

std::span<const CopyKernel> sse2_kernels() { return kKernels; }

}  // namespace headrace
#else
namespace headrace {
std::span<const CopyKernel> sse2_kernels() { return {}; }
}  // namespace headrace
#endif
