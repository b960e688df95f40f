// SPDX-License-Identifier: Apache-2.0
// Memory traffic in random order. A block's place does not depend on earlier loads, so as many
// blocks are in flight as the core supports. Thread-safe (no state).
//
// A pointer chase measures the time of one access, several chains how accesses overlap
// (parallelism). This measures the bandwidth of random accesses. The places are a computed
// permutation of all blocks, without a table: a block repeats only after all others. Counting as in
// traffic.h.
#pragma once

#include <cstddef>
#include <string>

#include "headrace/units.h"
#include "measure/instruments/traffic/traffic.h"

namespace headrace::instruments {

// Memory size for one thread whose lap covers at least `walked` bytes. In each of its parts
// (divide) the number of blocks, of at most a page, is a power of two.
Bytes random_area(const Mix& mix, Bytes walked);

struct RandomPlaces;
using RandomLoop = void (*)(const RandomPlaces& places);

class RandomTraffic {
 public:
  // Blocks of `block` bytes, in the widest vectors of this CPU. Requires: whole lines; a mix
  // without copies.
  RandomTraffic(const Mix& mix, std::size_t block);

  const Mix& mix() const { return *mix_; }
  // "avx512, blocks of 64 B in random order"
  std::string name() const;

  // As in TrafficKernel. A round is the mix once, in blocks. Each part of an area uses its first
  // 2^k blocks.
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
