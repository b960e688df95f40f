#include "measure/traffic.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.h"
#include "measure/chase.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace {
namespace {

constexpr std::array kMixes = {
    Mix{.name = "read", .reads = 1},
    Mix{.name = "3:1", .reads = 3, .writes = 1},
    Mix{.name = "2:1", .reads = 2, .writes = 1},
    Mix{.name = "1:1", .reads = 1, .writes = 1},
    Mix{.name = "write", .writes = 1},
    Mix{.name = "nt_2:1", .reads = 2, .writes = 1, .non_temporal = true},
    Mix{.name = "nt_1:1", .reads = 1, .writes = 1, .non_temporal = true},
    Mix{.name = "nt_write", .writes = 1, .non_temporal = true},
    Mix{.name = "copy", .reads = 1, .writes = 1, .copies = true},
    Mix{.name = "nt_copy", .reads = 1, .writes = 1, .non_temporal = true, .copies = true},
};

// One line in vectors of a kind. Each has: Vector, load(), store(), stream(), join(), zero().
#if defined(__x86_64__)

#define HEADRACE_SSE2 __attribute__((target("sse2"), always_inline)) static inline
#define HEADRACE_AVX2 __attribute__((target("avx2"), always_inline)) static inline
#define HEADRACE_AVX512 __attribute__((target("avx512f"), always_inline)) static inline

struct Sse2 {
  using Vector = __m128i;
  static constexpr std::size_t kBytes = 16;
  HEADRACE_SSE2 Vector load(const std::byte* p) {
    return _mm_load_si128(reinterpret_cast<const Vector*>(p));
  }
  HEADRACE_SSE2 void store(std::byte* p, Vector v) {
    _mm_store_si128(reinterpret_cast<Vector*>(p), v);
  }
  HEADRACE_SSE2 void stream(std::byte* p, Vector v) {
    _mm_stream_si128(reinterpret_cast<Vector*>(p), v);
  }
  HEADRACE_SSE2 Vector join(Vector a, Vector b) { return _mm_xor_si128(a, b); }
  HEADRACE_SSE2 Vector pattern() { return _mm_set1_epi32(0x5a5a5a5a); }
  HEADRACE_SSE2 void use(Vector v) { __asm__ volatile("" : : "x"(v)); }
};

struct Avx2 {
  using Vector = __m256i;
  static constexpr std::size_t kBytes = 32;
  HEADRACE_AVX2 Vector load(const std::byte* p) {
    return _mm256_load_si256(reinterpret_cast<const Vector*>(p));
  }
  HEADRACE_AVX2 void store(std::byte* p, Vector v) {
    _mm256_store_si256(reinterpret_cast<Vector*>(p), v);
  }
  HEADRACE_AVX2 void stream(std::byte* p, Vector v) {
    _mm256_stream_si256(reinterpret_cast<Vector*>(p), v);
  }
  HEADRACE_AVX2 Vector join(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
  HEADRACE_AVX2 Vector pattern() { return _mm256_set1_epi32(0x5a5a5a5a); }
  HEADRACE_AVX2 void use(Vector v) { __asm__ volatile("" : : "x"(v)); }
};

struct Avx512 {
  using Vector = __m512i;
  static constexpr std::size_t kBytes = 64;
  HEADRACE_AVX512 Vector load(const std::byte* p) { return _mm512_load_si512(p); }
  HEADRACE_AVX512 void store(std::byte* p, Vector v) { _mm512_store_si512(p, v); }
  HEADRACE_AVX512 void stream(std::byte* p, Vector v) {
    _mm512_stream_si512(reinterpret_cast<Vector*>(p), v);
  }
  HEADRACE_AVX512 Vector join(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
  HEADRACE_AVX512 Vector pattern() { return _mm512_set1_epi32(0x5a5a5a5a); }
  HEADRACE_AVX512 void use(Vector v) { __asm__ volatile("" : : "v"(v)); }
};

#endif

// Any CPU: words.
struct Words {
  using Vector = std::uint64_t;
  static constexpr std::size_t kBytes = 8;
  static Vector load(const std::byte* p) {
    return *static_cast<const volatile Vector*>(static_cast<const void*>(p));
  }
  static void store(std::byte* p, Vector v) {
    *static_cast<volatile Vector*>(static_cast<void*>(p)) = v;
  }
  static void stream(std::byte* p, Vector v) { store(p, v); }
  static Vector join(Vector a, Vector b) { return a ^ b; }
  static Vector pattern() { return 0x5a5a5a5a5a5a5a5a; }
  static void use(Vector v) { __asm__ volatile("" : : "r"(v)); }
};

// The loop of a mix. A macro and not a template, since a function template cannot carry the target
// of its parameter. Two accumulators, so that loads do not wait for each other's join.
#define HEADRACE_LOOP(name, target_attribute, V)                                             \
  template <unsigned kReads, unsigned kWrites, bool kStream, bool kCopy>                     \
  target_attribute __attribute__((noinline)) void name(const std::byte* from, std::byte* to, \
                                                       std::size_t groups) {                 \
    typename V::Vector even = V::pattern();                                                  \
    typename V::Vector odd = V::pattern();                                                   \
    for (; groups > 0; --groups) {                                                           \
      for (std::size_t i = 0; i < kLine * std::max(kReads, kWrites); i += V::kBytes) {       \
        if constexpr (kCopy) {                                                               \
          const typename V::Vector v = V::load(from + i);                                    \
          kStream ? V::stream(to + i, v) : V::store(to + i, v);                              \
        } else {                                                                             \
          if (i < kLine * kReads) {                                                          \
            typename V::Vector& sum = i / V::kBytes % 2 == 0 ? even : odd;                   \
            sum = V::join(sum, V::load(from + i));                                           \
          }                                                                                  \
          if (i < kLine * kWrites) {                                                         \
            kStream ? V::stream(to + i, V::pattern()) : V::store(to + i, V::pattern());      \
          }                                                                                  \
        }                                                                                    \
      }                                                                                      \
      from += kLine * kReads;                                                                \
      to += kLine * kWrites;                                                                 \
    }                                                                                        \
    V::use(V::join(even, odd));                                                              \
  }

HEADRACE_LOOP(loop_words, , Words)
#if defined(__x86_64__)
HEADRACE_LOOP(loop_sse2, __attribute__((target("sse2"))), Sse2)
HEADRACE_LOOP(loop_avx2, __attribute__((target("avx2"))), Avx2)
HEADRACE_LOOP(loop_avx512, __attribute__((target("avx512f"))), Avx512)
#endif

struct Loops {
  TrafficKernel::Loop words;
  TrafficKernel::Loop sse2;
  TrafficKernel::Loop avx2;
  TrafficKernel::Loop avx512;
};

// A group is the mix four times where that is short, else once: small enough that the compiler
// makes straight code of it (16 vectors), large enough that the loop's own cost is nothing.
constexpr unsigned times(unsigned reads, unsigned writes) {
  return std::max(reads, writes) == 1 ? 4 : 1;
}

template <unsigned kReads, unsigned kWrites, bool kStream, bool kCopy>
constexpr Loops loops() {
  constexpr unsigned n = times(kReads, kWrites);
#if defined(__x86_64__)
  return {loop_words<n * kReads, n * kWrites, kStream, kCopy>,
          loop_sse2<n * kReads, n * kWrites, kStream, kCopy>,
          loop_avx2<n * kReads, n * kWrites, kStream, kCopy>,
          loop_avx512<n * kReads, n * kWrites, kStream, kCopy>};
#else
  return {loop_words<n * kReads, n * kWrites, kStream, kCopy>, nullptr, nullptr, nullptr};
#endif
}

// As kMixes.
const std::array<Loops, kMixes.size()> kLoops = {
    loops<1, 0, false, false>(), loops<3, 1, false, false>(), loops<2, 1, false, false>(),
    loops<1, 1, false, false>(), loops<0, 1, false, false>(), loops<2, 1, true, false>(),
    loops<1, 1, true, false>(),  loops<0, 1, true, false>(),  loops<1, 1, false, true>(),
    loops<1, 1, true, true>(),
};

unsigned vector_bits_here() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return 512;
  if (__builtin_cpu_supports("avx2")) return 256;
  return 128;
#else
  return 64;
#endif
}

constexpr std::size_t kPage = 4096;

}  // namespace

std::span<const Mix> mixes() { return kMixes; }

const Mix* find_mix(std::string_view name) {
  const auto found = std::ranges::find(kMixes, name, &Mix::name);
  return found == kMixes.end() ? nullptr : &*found;
}

TrafficArea divide(const Mix& mix, std::span<std::byte> memory) {
  const std::size_t pages = memory.size() / kPage;
  const std::size_t read_bytes = pages * mix.reads / mix.lines() * kPage;
  const std::size_t write_bytes = pages * mix.writes / mix.lines() * kPage;
  return {.from = memory.first(read_bytes), .to = memory.subspan(read_bytes, write_bytes)};
}

TrafficKernel::TrafficKernel(const Mix& mix, unsigned most_bits)
    : mix_(&mix), bits_(std::min(vector_bits_here(), most_bits)) {
  const auto at = std::ranges::find(kMixes, mix.name, &Mix::name) - kMixes.begin();
  CHECK(static_cast<std::size_t>(at) < kMixes.size());
  const Loops& all = kLoops[static_cast<std::size_t>(at)];
  loop_ = bits_ == 512 ? all.avx512 : bits_ == 256 ? all.avx2 : bits_ == 128 ? all.sse2 : all.words;
}

std::size_t TrafficKernel::groups(const TrafficArea& area) const {
  const std::size_t n = times(mix_->reads, mix_->writes);
  std::size_t most = SIZE_MAX;
  if (mix_->reads > 0) most = area.from.size() / (kLine * n * mix_->reads);
  if (mix_->writes > 0) most = std::min(most, area.to.size() / (kLine * n * mix_->writes));
  return most;
}

std::size_t TrafficKernel::lines_per_group() const {
  return mix_->lines() * std::size_t{times(mix_->reads, mix_->writes)};
}

std::size_t TrafficKernel::run(const TrafficArea& area, std::size_t first,
                               std::size_t count) const {
  DCHECK(first + count <= groups(area));
  const std::size_t n = times(mix_->reads, mix_->writes);
  loop_(area.from.data() + first * kLine * n * mix_->reads,
        area.to.data() + first * kLine * n * mix_->writes, count);
  return count * lines_per_group();
}

void TrafficKernel::finish() const {
#if defined(__x86_64__)
  if (mix_->non_temporal) _mm_sfence();
#endif
}

}  // namespace headrace
