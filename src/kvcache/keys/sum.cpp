// SPDX-License-Identifier: Apache-2.0
#include "kvcache/keys/sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace headrace::kvcache {

std::uint64_t plain_sum(std::span<const std::byte> bytes, std::uint64_t seed) {
#ifdef __x86_64__
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return plain_sum_avx2(bytes.data(), bytes.size(), seed);
#endif
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace headrace::kvcache
