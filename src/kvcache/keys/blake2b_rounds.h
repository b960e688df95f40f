// SPDX-License-Identifier: Apache-2.0
// The rounds of BLAKE2b (RFC 7693), over words or over vectors of words with a message in each
// lane. Included by code compiled for AVX2 too, so nothing here may be emitted for other files to
// share.
#pragma once

#include <cstdint>

namespace headrace::kvcache {

// The initial state of SHA-512: the fractions of the square roots of the first eight primes.
inline constexpr std::uint64_t kBlake2bStart[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

// No key, no tree (RFC 7693, 2.5); the length of the digest is added.
inline constexpr std::uint64_t kBlake2bParameters = 0x01010000;

// RFC 7693, 2.7; rounds 10 and 11 are 0 and 1 again.
inline constexpr std::uint8_t kBlake2bOrder[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

template <class Word>
[[gnu::always_inline]] inline Word rotated_right(Word word, int bits) {
  return (word >> bits) | (word << (64 - bits));
}

template <class Word>
[[gnu::always_inline]] inline void blake2b_mix(Word& a, Word& b, Word& c, Word& d, Word x, Word y) {
  a += b + x;
  d = rotated_right(d ^ a, 32);
  c += d;
  b = rotated_right(b ^ c, 24);
  a += b + y;
  d = rotated_right(d ^ a, 16);
  c += d;
  b = rotated_right(b ^ c, 63);
}

// `m`: the 16 words of a chunk.
template <class Word>
[[gnu::always_inline]] inline void blake2b_rounds(Word (&v)[16], const Word* m) {
  for (unsigned round = 0; round < 12; ++round) {
    const auto& s = kBlake2bOrder[round % 10];
    for (unsigned i = 0; i < 4; ++i) {
      blake2b_mix(v[i], v[4 + i], v[8 + i], v[12 + i], m[s[2 * i]], m[s[2 * i + 1]]);
    }
    for (unsigned i = 0; i < 4; ++i) {
      blake2b_mix(v[i], v[4 + (i + 1) % 4], v[8 + (i + 2) % 4], v[12 + (i + 3) % 4],
                  m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
    }
  }
}

}  // namespace headrace::kvcache
