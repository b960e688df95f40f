// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2 (cmake/headrace.cmake): includes nothing whose code other files share.
#ifdef __x86_64__
#include <cstdint>

#include "kvcache/keys/blake2b_rounds.h"

namespace headrace::kvcache {

using Lanes [[gnu::vector_size(32)]] = std::uint64_t;

void blake2b_lanes_avx2(const std::uint64_t (&chunks)[16][4], const std::uint64_t (&lengths)[4],
                        unsigned digest_bytes, std::uint64_t (&digests)[2][4]) {
  Lanes m[16];
  for (unsigned i = 0; i < 16; ++i) {
    m[i] = Lanes{chunks[i][0], chunks[i][1], chunks[i][2], chunks[i][3]};
  }
  Lanes start[8];
  Lanes v[16];
  for (unsigned i = 0; i < 8; ++i) {
    start[i] = v[i] = v[8 + i] = Lanes{} + kBlake2bStart[i];
  }
  v[0] = start[0] ^= kBlake2bParameters ^ digest_bytes;
  v[12] ^= Lanes{lengths[0], lengths[1], lengths[2], lengths[3]};
  v[14] = ~v[14];  // the last chunk
  blake2b_rounds(v, m);
  for (unsigned word = 0; word < 2; ++word) {
    const Lanes digest = start[word] ^ v[word] ^ v[word + 8];
    for (unsigned lane = 0; lane < 4; ++lane) digests[word][lane] = digest[lane];
  }
}

}  // namespace headrace::kvcache
#endif
