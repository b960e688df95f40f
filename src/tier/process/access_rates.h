// SPDX-License-Identifier: Apache-2.0
// Estimates how often chunks of memory are touched, from page faults. Pure. Thread-compatible.
//
// The rate is touches divided by exposed time, since only a touch of an exposed chunk faults:
// - A chunk in swap is always exposed.
// - A resident chunk is exposed from the kernel's removal of its page table entry (a hint) until
//   its next fault.
//
// The kernel does not report removals. A second fault of a chunk proves one since the first fault.
// The kernel removes the entries of a region together; so the region's other chunks count as
// exposed from that time, except chunks that fault at the same moment.
//
// A first write after a read returned the page from swap proves nothing: the page was mapped for
// reading only, so the write faults too. A region that is no longer used counts as exposed once the
// kernel has completed a round since. Samplers of accesses report the time that they looked.
//
// Times count from the start, so that a float holds them to 10 ms for a day.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "headrace/units.h"

namespace headrace {

// The pages of a chunk, as last known.
struct ChunkPages {
  std::uint16_t resident = 0;
  std::uint16_t out = 0;
};

class AccessRates {
 public:
  // Evidence halves in weight after `half_life`. Requires: chunk a power of two, half_life > 0.
  AccessRates(Bytes chunk, Nanoseconds half_life);
  // Also applies to existing evidence, from the last touch of each chunk.
  void set_half_life(Nanoseconds half_life);

  // Records a fault. `was_out`: the page came from swap; else its entry had been removed, or it is
  // new.
  void touched(std::uintptr_t address, Nanoseconds now, bool was_out);
  // Records `touches` seen in samples over `span`.
  void sampled(std::uintptr_t address, Nanoseconds now, Nanoseconds span, double touches);
  // The chunk went to swap, so it is exposed.
  void went_out(std::uintptr_t address, Nanoseconds now);
  // The kernel completed a round over all memory between `since` and now.
  void passed(Nanoseconds since, Nanoseconds now);
  // Touches per second of exposed time. A chunk that was never exposed gets the prior rate, far
  // below one touch per half-life.
  double rate(std::uintptr_t address, Nanoseconds now) const;
  // Time of the last touch, or of going to swap.
  Nanoseconds last(std::uintptr_t address) const;

  ChunkPages pages(std::uintptr_t address) const;
  void set_pages(std::uintptr_t address, ChunkPages pages, Nanoseconds now);
  // Forgets regions without news since then.
  void forget_before(Nanoseconds since);

  std::uintptr_t chunk_of(std::uintptr_t address) const { return address & ~(chunk_ - 1); }

 private:
  static constexpr std::size_t kChunks =
      512;  // per region: one page of entries, if chunks are pages
  static constexpr float kHidden = -1;
  static constexpr float kReturned = -2;  // hidden; its next fault may be its first write
  struct Chunk {
    float touches = 0;      // both as of `last`
    float exposed = 0;      // s
    float last = 0;         // s
    float since = kHidden;  // s; exposed since then; below 0: hidden
    ChunkPages pages;
  };
  struct Region {
    std::array<Chunk, kChunks> chunks;
    double armed = 0;  // s; latest proven removal of entries
    Nanoseconds told{};
  };
  Region& region(std::uintptr_t address);  // made if missing
  Region* find(std::uintptr_t address) const;
  std::size_t index(std::uintptr_t address) const { return address / chunk_ % kChunks; }
  // Exposed seconds since the last touch.
  static double waiting(const Chunk& chunk, double now);
  // Marks hidden chunks as exposed: the kernel has removed the entries.
  static void expose(Region& region, double now);
  double kept(const Chunk& chunk, double now) const;
  void account(Chunk& chunk, double now, double touches);

  const std::uint64_t chunk_;
  double half_life_;  // s
  std::unordered_map<std::uint64_t, std::unique_ptr<Region>> regions_;
  mutable std::uint64_t found_key_ =
      ~std::uint64_t{0};  // the region found last: addresses mostly come in order
  mutable Region* found_ = nullptr;
};

}  // namespace headrace
