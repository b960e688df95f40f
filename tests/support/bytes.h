// SPDX-License-Identifier: Apache-2.0
// Bytes to copy and to compare. Tests are compiled without optimisation, and a sanitizer checks
// each access: a loop over single bytes takes 0.1 us for each. So do std::equal() and == of vectors
// of std::byte, and std::ranges::copy() from constant ones, but not std::copy(). These functions
// take a block or a whole range at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "headrace/random.h"

namespace headrace::test {

// Words of a linear congruential generator (Knuth's MMIX), multiplied. Returns its next state.
__attribute__((no_sanitize("address", "thread", "undefined"))) inline std::uint64_t random_words(
    std::uint64_t* begin, const std::uint64_t* end, std::uint64_t state) {
  for (std::uint64_t* at = begin; at != end; ++at) {
    state = state * 6364136223846793005 + 1442695040888963407;
    *at = (state ^ (state >> 29)) * 0xbf58476d1ce4e5b9;
  }
  return state;
}

// Writes random bytes: the same for the same seed.
inline void fill_random(std::span<std::byte> bytes, std::uint64_t seed) {
  std::array<std::uint64_t, 512> words;
  std::uint64_t state = Random(seed)();
  for (std::size_t at = 0; at < bytes.size(); at += sizeof words) {
    state = random_words(words.data(), words.data() + words.size(), state);
    std::memcpy(bytes.data() + at, words.data(), std::min(bytes.size() - at, sizeof words));
  }
}

inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::vector<std::byte> bytes(count);
  fill_random(bytes, seed);
  return bytes;
}

inline bool same(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

}  // namespace headrace::test
