#include "backend/cpu/kernels.h"

#if defined(__x86_64__)

#define HEADRACE_TARGET __attribute__((target("avx2")))
#include "backend/cpu/nt_copy.h"

namespace headrace {
namespace {

struct Avx2 {
  using Register = __m256i;
  static constexpr std::size_t kBytes = 32;

  HEADRACE_INLINE static Register load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  HEADRACE_INLINE static void stream(std::byte* to, Register value) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
  }
};

constexpr CopyKernel kKernels[] = {
    {"avx2_nt", nt_copy<Avx2, kPlain>},         {"avx2_nt_ahead", nt_copy<Avx2, kAhead>},
    {"avx2_nt_2streams", nt_copy<Avx2, kTwo>},  {"avx2_nt_3streams", nt_copy<Avx2, kThree>},
    {"avx2_nt_4streams", nt_copy<Avx2, kFour>},
};

}  // namespace

std::span<const CopyKernel> avx2_kernels() { return kKernels; }

}  // namespace headrace

#else

namespace headrace {

std::span<const CopyKernel> avx2_kernels() { return {}; }

}  // namespace headrace

#endif
