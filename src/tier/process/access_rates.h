// SPDX-License-Identifier: Apache-2.0
// How often chunks of memory are touched, from faults: pure. Thread-compatible.
//
// A touch is seen where it faults: a chunk that is out is exposed all the time, one that is
// resident from when the kernel takes its entry away for a hint until the fault that brings it
// back. So the rate is touches by time exposed, and not by time. When the kernel came by nobody
// tells; but a chunk that faults a second time proves that it did since the first, and it takes
// away the entries of a region together: by that the others of the region are exposed from there,
// but for those that have faulted at that moment. What came back from swap by a read is mapped
// for reading only, so that its first write faults too, which proves nothing. Of a region that
// nobody uses any more that is known once the kernel has gone all the way round since. Who samples
// accesses tells for what time it has looked. Times are those since the start, so that a float
// holds them to 10 ms for a day.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "headrace/units.h"

namespace headrace {

// Where the pages of a chunk are, as last known.
struct ChunkPages {
  std::uint16_t resident = 0;
  std::uint16_t out = 0;
};

class AccessRates {
 public:
  // Evidence counts half after `half_life`. Requires: chunk a power of two, half_life > 0.
  AccessRates(Bytes chunk, Nanoseconds half_life);
  // That which is there counts by it too, from the last touch of a chunk.
  void set_half_life(Nanoseconds half_life);

  // A fault; `was_out`: it came from swap, else its entry had been taken away, or it was new.
  void touched(std::uintptr_t address, Nanoseconds now, bool was_out);
  // It was looked at for `span`, and seen to be touched so often.
  void sampled(std::uintptr_t address, Nanoseconds now, Nanoseconds span, double touches);
  // The chunk is out from now on, and so exposed.
  void went_out(std::uintptr_t address, Nanoseconds now);
  // The kernel has gone all the way round between `since` and now.
  void passed(Nanoseconds since, Nanoseconds now);
  // Touches per second of time exposed; what was never exposed has the rate that all have a priori,
  // far below one touch in a half-life.
  double rate(std::uintptr_t address, Nanoseconds now) const;
  // The time of the last touch, or of going out.
  Nanoseconds last(std::uintptr_t address) const;

  ChunkPages pages(std::uintptr_t address) const;
  void set_pages(std::uintptr_t address, ChunkPages pages, Nanoseconds now);
  // Forgets regions of which nothing was told since then.
  void forget_before(Nanoseconds since);

  std::uintptr_t chunk_of(std::uintptr_t address) const { return address & ~(chunk_ - 1); }

 private:
  static constexpr std::size_t kChunks =
      512;  // of a region: a page of entries, if chunks are pages
  static constexpr float kHidden = -1;
  static constexpr float kReturned = -2;  // hidden; its next fault may be its first write
  struct Chunk {
    float touches = 0;      // both as of `last`
    float exposed = 0;      // s
    float last = 0;         // s
    float since = kHidden;  // s; exposed since then; below 0: it is not
    ChunkPages pages;
  };
  struct Region {
    std::array<Chunk, kChunks> chunks;
    double armed = 0;  // s; when the kernel last came by, as far as proven
    Nanoseconds told{};
  };
  Region& region(std::uintptr_t address);  // made if need be
  Region* find(std::uintptr_t address) const;
  std::size_t index(std::uintptr_t address) const { return address / chunk_ % kChunks; }
  // Seconds for which it has been exposed since its last touch.
  static double waiting(const Chunk& chunk, double now);
  // The kernel has come by.
  static void expose(Region& region, double now);
  double kept(const Chunk& chunk, double now) const;
  void account(Chunk& chunk, double now, double touches);

  const std::uint64_t chunk_;
  double half_life_;  // s
  std::unordered_map<std::uint64_t, std::unique_ptr<Region>> regions_;
  mutable std::uint64_t found_key_ = ~std::uint64_t{0};  // the last one found: most come in order
  mutable Region* found_ = nullptr;
};

}  // namespace headrace
