// SPDX-License-Identifier: Apache-2.0
// Bytes to copy and to compare. Tests are compiled without optimisation, and a sanitizer checks
// each access: a loop over single bytes, or std::ranges::equal() over std::byte, takes 0.1 us for
// each. These functions take a word or a whole range at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "headrace/random.h"

namespace headrace::test {

// Writes random bytes: the same for the same seed.
inline void fill_random(std::span<std::byte> bytes, std::uint64_t seed) {
  Random random(seed);
  std::byte* at = bytes.data();
  for (std::size_t left = bytes.size(); left > 0;) {
    const std::uint64_t word = random();
    const std::size_t part = std::min(left, sizeof word);
    std::memcpy(at, &word, part);
    at += part;
    left -= part;
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
