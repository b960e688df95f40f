// SPDX-License-Identifier: Apache-2.0
#include "kvcache/keys/blake2b.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kvcache/keys/blake2b_rounds.h"

namespace headrace::kvcache {
namespace {

static_assert(std::endian::native == std::endian::little);

}  // namespace

Blake2b::Blake2b(unsigned digest_bytes) {
  std::ranges::copy(kBlake2bStart, state_.begin());
  state_[0] ^= kBlake2bParameters ^ digest_bytes;
}

void Blake2b::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filled_ == kChunk) compress(false);  // the last chunk needs its own flag
    const std::size_t take = std::min(bytes.size(), kChunk - filled_);
    std::memcpy(chunk_.data() + filled_, bytes.data(), take);
    filled_ += take;
    length_ += take;
    bytes = bytes.subspan(take);
  }
}

std::array<std::byte, 64> Blake2b::digest() {
  std::fill(chunk_.begin() + static_cast<std::ptrdiff_t>(filled_), chunk_.end(), std::byte{0});
  compress(true);
  return std::bit_cast<std::array<std::byte, 64>>(state_);
}

void Blake2b::compress(bool last) {
  const auto m = std::bit_cast<std::array<std::uint64_t, 16>>(chunk_);
  std::uint64_t v[16];
  std::ranges::copy(state_, v);
  std::ranges::copy(kBlake2bStart, v + 8);
  v[12] ^= length_;
  if (last) v[14] = ~v[14];
  blake2b_rounds(v, m.data());
  for (unsigned i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[i + 8];
  filled_ = 0;
}

}  // namespace headrace::kvcache
