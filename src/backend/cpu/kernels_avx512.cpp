#include "backend/cpu/kernels.h"

#if defined(__x86_64__)

#define HEADRACE_TARGET __attribute__((target("avx512f")))
#include "backend/cpu/nt_copy.h"

namespace headrace {
namespace {

struct Avx512 {
  using Register = __m512i;
  static constexpr std::size_t kBytes = 64;

  HEADRACE_INLINE static Register load(const std::byte* from) {
    return _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from));
  }
  HEADRACE_INLINE static void stream(std::byte* to, Register value) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value);
  }
};

constexpr CopyKernel kKernels[] = {
    {"avx512_nt", nt_copy<Avx512, kPlain>},         {"avx512_nt_ahead", nt_copy<Avx512, kAhead>},
    {"avx512_nt_2streams", nt_copy<Avx512, kTwo>},  {"avx512_nt_3streams", nt_copy<Avx512, kThree>},
    {"avx512_nt_4streams", nt_copy<Avx512, kFour>},
};

}  // namespace

std::span<const CopyKernel> avx512_kernels() { return kKernels; }

}  // namespace headrace

#else

namespace headrace {

std::span<const CopyKernel> avx512_kernels() { return {}; }

}  // namespace headrace

#endif
