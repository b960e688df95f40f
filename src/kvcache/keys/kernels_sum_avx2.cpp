// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2 (cmake/headrace.cmake): includes nothing whose code other files share.
#ifdef __x86_64__
#include <cstddef>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace headrace::kvcache {

std::uint64_t plain_sum_avx2(const void* bytes, std::size_t length, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, length, seed);
}

}  // namespace headrace::kvcache
#endif
