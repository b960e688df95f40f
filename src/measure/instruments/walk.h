// SPDX-License-Identifier: Apache-2.0
// The order in which a cold copy visits the pieces of its area. Single-thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "headrace/units.h"
#include "measure/instruments/buffer_pool.h"

namespace headrace::instruments {

// Area of a cold copy on each side: whole pieces, as many as ScatteredWalk visits, at least four
// times the cache, so that a piece repeats only after the others have pushed it out.
inline Bytes cold_area(Bytes cache, Bytes piece) {
  const std::uint64_t walked = (cache * kCachesPassed).value;
  return piece * std::bit_ceil((walked + piece.value - 1) / piece.value);
}

// All slots of an area in scattered order, each once per round. No table, which would fill the
// caches itself, but a linear congruential generator modulo a power of two. It has its full period
// if the increment is odd and the multiplier is 1 modulo 4 (Hull and Dobell, 1962).
class ScatteredWalk {
 public:
  // Visits the first 2^k slots, 2^k <= `slots`. Requires: slots > 0.
  explicit ScatteredWalk(std::size_t slots) : mask_(std::bit_floor(slots) - 1) {}

  std::size_t slots() const { return mask_ + 1; }
  std::size_t next() { return at_ = (at_ * kMultiplier + kIncrement) & mask_; }

 private:
  // MMIX (Knuth, vol. 2, 3.3.4); the multiplier is 5 modulo 8, the increment odd.
  static constexpr std::size_t kMultiplier = 6364136223846793005U;
  static constexpr std::size_t kIncrement = 1442695040888963407U;

  const std::size_t mask_;
  std::size_t at_ = 0;
};

}  // namespace headrace::instruments
