// SPDX-License-Identifier: Apache-2.0
// Memory traffic in random order: blocks of lines, each at a place that does not depend on what was
// loaded before, so that as many are on the way at once as the core can have.
//
// A pointer chase asks how long one access takes, and several chains how that adds up
// (parallelism); this asks how many bytes of random places come through. The places are a
// permutation of all blocks, computed and not read from a table: a block comes up again only after
// all others. Counting as traffic.h. Thread-safe (no state).
#pragma once

#include <cstddef>
#include <string>

#include "headrace/units.h"
#include "measure/instruments/traffic/traffic.h"

namespace headrace::instruments {

// The memory of one thread of which a lap walks over `walked` bytes at least: each of its parts
// (divide) has a power of two of blocks, of a page at most, for its share of them.
Bytes random_area(const Mix& mix, Bytes walked);

struct RandomPlaces;
using RandomLoop = void (*)(const RandomPlaces& places);

class RandomTraffic {
 public:
  // Blocks of so many bytes, in the widest vectors of this CPU. Requires: whole lines; a mix that
  // copies nothing.
  RandomTraffic(const Mix& mix, std::size_t block);

  const Mix& mix() const { return *mix_; }
  // "avx512, blocks of 64 B in random order"
  std::string name() const;

  // As TrafficKernel's: a round is the mix once, in blocks. Of each part of an area the first 2^k
  // blocks are used.
  std::size_t rounds(const TrafficArea& area) const;
  std::size_t lines_per_round() const;
  std::size_t run(const TrafficArea& area, std::size_t first, std::size_t count) const;
  void finish() const;

 private:
  const Mix* mix_;
  std::size_t block_;
  RandomLoop loop_;
};

}  // namespace headrace::instruments
