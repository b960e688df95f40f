// SPDX-License-Identifier: Apache-2.0
// BLAKE2b without a key (RFC 7693): a collision-resistant digest. Single-thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::kvcache {

class Blake2b {
 public:
  static constexpr std::size_t kChunk = 128;

  // Requires: 1 <= digest_bytes <= 64.
  explicit Blake2b(unsigned digest_bytes);
  void add(std::span<const std::byte> bytes);
  // The first digest_bytes are the digest. Nothing may be added afterwards.
  std::array<std::byte, 64> digest();

 private:
  void compress(bool last);

  std::array<std::uint64_t, 8> state_;
  std::array<std::byte, kChunk> chunk_{};
  std::size_t filled_ = 0;
  std::uint64_t length_ = 0;
};

#ifdef __x86_64__
// The first 16 bytes of the digests of four messages of at most one chunk each: chunks[i][lane] is
// word i of a message, filled up with 0, and lengths[lane] its bytes. Requires: the CPU has AVX2.
void blake2b_lanes_avx2(const std::uint64_t (&chunks)[16][4], const std::uint64_t (&lengths)[4],
                        unsigned digest_bytes, std::uint64_t (&digests)[2][4]);
#endif

}  // namespace headrace::kvcache
