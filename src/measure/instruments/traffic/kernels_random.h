// SPDX-License-Identifier: Apache-2.0
// The loop of random traffic, for each vector width of this build.
#pragma once

#include <bit>
#include <cstddef>

#include "measure/instruments/traffic/random_traffic.h"

namespace headrace::instruments {

// Work of a loop: `count` rounds from `first` on, each with `reads` blocks of one part and `writes`
// blocks of the other. place_of() the block numbers are the places.
struct RandomPlaces {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t from_mask = 0;
  std::size_t to_mask = 0;
  std::size_t block = 0;  // bytes
  unsigned reads = 0;
  unsigned writes = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

// The place of block `number` of 2^k blocks; `mask` is 2^k - 1. It is a permutation: each step is a
// bijection of the numbers up to the mask, a folded right shift or a product with an odd number
// (from MurmurHash3's finalizer, public domain). A linear function would visit channels and banks
// in turn.
inline std::size_t place_of(std::size_t number, std::size_t mask) {
  const auto half = static_cast<unsigned>(std::bit_width(mask) + 1) / 2;
  std::size_t at = number & mask;
  at ^= at >> half;
  at = at * 0xff51afd7ed558ccdU & mask;
  at ^= at >> half;
  at = at * 0xc4ceb9fe1a85ec53U & mask;
  return at ^ at >> half;
}

// Requires, on x86-64: bits in {128, 256, 512}, supported by the CPU; other CPUs have one width.
RandomLoop random_loop(bool non_temporal, unsigned bits);

}  // namespace headrace::instruments
