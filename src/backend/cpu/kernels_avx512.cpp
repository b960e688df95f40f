#include "backend/cpu/kernels.h"

#if defined(__x86_64__)
#define HEADRACE_TARGET __attribute__((target("avx512f")))
#include "backend/cpu/nt_copy.h"

namespace headrace {
namespace {

struct Avx512 {
  using Register = __m512i;
  static constexpr unsigned kBytes = 64;
  HEADRACE_TARGET static Register load(const std::byte* from) {
    return _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from));
  }
  HEADRACE_TARGET static void stream(std::byte* to, Register value) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value);
  }
};

constexpr CopyKernel kKernels[] = {
    {"avx512_nt", nt_copy<Avx512, 1, 0>},
    {"avx512_nt_ahead", nt_copy<Avx512, 1, 1024>},
    {"avx512_nt_2pages", nt_copy<Avx512, 2, 0>},
    {"avx512_nt_4pages", nt_copy<Avx512, 4, 0>},
};

}  // namespace

std::span<const CopyKernel> avx512_kernels() { return kKernels; }

}  // namespace headrace
#else
namespace headrace {
std::span<const CopyKernel> avx512_kernels() { return {}; }
}  // namespace headrace
#endif
