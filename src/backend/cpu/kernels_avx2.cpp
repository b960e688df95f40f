#include "backend/cpu/kernels.h"

#if defined(__x86_64__)
#define HEADRACE_TARGET __attribute__((target("avx2")))
#include "backend/cpu/nt_copy.h"

namespace headrace {
namespace {

struct Avx2 {
  using Register = __m256i;
  static constexpr unsigned kBytes = 32;
  HEADRACE_TARGET static Register load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  HEADRACE_TARGET static void stream(std::byte* to, Register value) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
  }
};

constexpr CopyKernel kKernels[] = {
    {"avx2_nt", nt_copy<Avx2, 1, 0>},
    {"avx2_nt_ahead", nt_copy<Avx2, 1, 1024>},
    {"avx2_nt_2pages", nt_copy<Avx2, 2, 0>},
    {"avx2_nt_4pages", nt_copy<Avx2, 4, 0>},
};

}  // namespace

std::span<const CopyKernel> avx2_kernels() { return kKernels; }

}  // namespace headrace
#else
namespace headrace {
std::span<const CopyKernel> avx2_kernels() { return {}; }
}  // namespace headrace
#endif
