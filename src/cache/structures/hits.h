// SPDX-License-Identifier: Apache-2.0
// The blocks of a shard by their ranges, and their pins. A ready block is found, pinned and
// released without the lock; the proof is in readers.h.
//
// Thread-safe where a function says so; the rest is called under the shard's lock.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/structures/entry.h"
#include "cache/structures/index.h"
#include "cache/structures/readers.h"

namespace headrace {

class Hits {
 public:
  // Whether hits need no lock: there is no observer, and the orders only mark. Thread-safe.
  bool open() const { return open_; }
  // Before the first access.
  void close() { open_ = false; }

  // The block that find() would return, if it and all blocks that cover the range are open.
  // Otherwise it may return a block that is not open; the caller checks that. Thread-safe.
  CacheEntry* find_wider(const Range& range) const;
  // Whether a block may cover the range. Thread-safe.
  bool may_cover(const Range& range) const;
  // P1 to P4: pins `entry`, which was found without the lock. Thread-safe.
  // - kEqual: only a block of exactly the range is wanted.
  // - `asked` is the same range as `range`, which stays in registers.
  // - Null: no slot is free, or the entry is no longer the wanted block.
  // - lost(slot) releases the slot of such an entry under the lock.
  template <bool kEqual, class Lost>
  PinSlot* pin(Reader& reader, CacheEntry& entry, const Range& range, const Extent& asked,
               const Lost& lost);

  // The shortest ready block that covers the range; else the shortest in flight.
  CacheEntry* find(const Range& range) const;
  // Makes a reader for this thread, if hits are open.
  void join() {
    if (open_) readers.join();
  }
  // Pins in a slot, so that the release needs no lock. Null: no slot is free, or all pins of the
  // block are counted; then this one is too.
  PinSlot* pin_in_slot(CacheEntry& entry);
  void pin(CacheEntry& entry);
  // True: it was the last counted pin.
  bool unpin(CacheEntry& entry);
  // Its bytes are no longer its own.
  void forget_bytes(const CacheEntry& entry) {
    if (entry.pins > 0) pinned_bytes_[entry.tenant] -= entry.length;
  }
  // Makes `pins` of these entries count all their pins, until open() of blocks.h.
  void count_pins(std::span<CacheEntry* const> entries);
  void count_pins(CacheEntry& entry) {
    CacheEntry* const one = &entry;
    count_pins({&one, 1});
  }
  // D3 to D5 for all entries with that flag.
  void count_pins_of(std::uint32_t flag);
  // Whether all of these can be dropped now. Counts their pins.
  bool may_go(std::span<Frame* const> frames, bool planned_too);
  std::uint64_t pins() const { return pins_; }
  // Bytes of pinned blocks by the number of their tenant. Each block counts once.
  using ByTenant = std::array<std::uint64_t, CacheEntry::kMostTenants>;
  ByTenant pinned_bytes() const;

  // Changed under the lock; read by hits without it.
  RangeIndex<CacheEntry> index;
  Readers readers;

 private:
  [[gnu::cold, gnu::noinline]] static bool reopen(CacheEntry& entry, const Extent& asked,
                                                  bool equal);
  PinSlot* free_slot();

  bool open_ = true;
  alignas(64) std::uint64_t pins_ = 0;  // counted ones
  ByTenant pinned_bytes_{};             // by counted pins
  std::vector<CacheEntry*> asked_;      // reused by each may_go()
};

template <bool kEqual, class Lost>
[[gnu::always_inline]] inline PinSlot* Hits::pin(Reader& reader, CacheEntry& entry,
                                                 const Range& range, const Extent& asked,
                                                 const Lost& lost) {
  PinSlot* const slot = reader.free_slot();
  if (slot == nullptr) [[unlikely]]
    return nullptr;
  readers.pin(*slot, entry);
  if (!(kEqual ? entry.is_open_as(range) : entry.is_open_for(range)) &&
      !reopen(entry, asked, kEqual)) [[unlikely]] {
    if (!readers.unpin(*slot)) lost(*slot);
    return nullptr;
  }
  reader.hits = reader.hits + 1;
  // Pairs with nothing: a late mark is good enough. Written only once: other threads read the line.
  if (!entry.visited.load(std::memory_order_relaxed)) {
    entry.visited.store(true, std::memory_order_relaxed);
  }
  return slot;
}

}  // namespace headrace
