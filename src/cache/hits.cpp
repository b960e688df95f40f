// SPDX-License-Identifier: Apache-2.0
// Hits: a ready block is found, pinned and released without the lock. Also how such pins are
// counted before a block is dropped. The proof is in readers.h.
#include <algorithm>

#include "cache/core.h"
#include "cache/shards.h"
#include "core/check.h"

namespace headrace {

// The block that find() would return, if it and all blocks that cover the range are open. Otherwise
// it may return a block that is not open; the caller checks that.
CacheEntry* CacheCore::find_wider(const Range& range) const {
  CacheEntry* best = nullptr;
  const bool whole = index_.racing(range, [&](CacheEntry& entry) {
    const std::uint32_t word = entry.word.load();
    if (!CacheEntry::is_open(word) && !CacheEntry::may_reopen(word)) {
      best = nullptr;
      return false;
    }
    const std::uint64_t length = entry.length;
    if (best == nullptr || length < best->length) best = &entry;
    return length != range.length;  // nothing is better
  });
  return whole ? best : nullptr;
}

// Whether a hit needs no lock.
inline bool CacheCore::hits_open() const { return hits_open_ && origin_.here(); }

// P1 to P4: the slot that pins `entry`, which was found without the lock. Null: no slot is free, or
// the entry is no longer the wanted block. kEqual: only a block of exactly the range is wanted.
// `asked` is the same range as `range`, which stays in registers.
template <bool kEqual>
[[gnu::always_inline]] inline PinSlot* CacheCore::pin_open(Reader& reader, CacheEntry& entry,
                                                           const Range& range,
                                                           const Extent& asked) {
  PinSlot* const slot = reader.free_slot();
  if (slot == nullptr) [[unlikely]]
    return nullptr;
  readers_.pin(*slot, entry);
  if (!(kEqual ? entry.is_open_as(range) : entry.is_open_for(range)) &&
      !pin_victim(*slot, entry, asked, kEqual)) [[unlikely]]
    return nullptr;
  reader.hits = reader.hits + 1;
  // Pairs with nothing: a late mark is good enough. Written only once: other threads read the line.
  if (!entry.visited.load(std::memory_order_relaxed)) {
    entry.visited.store(true, std::memory_order_relaxed);
  }
  return slot;
}

// P3 and P4 again for an entry that was not open, but may be a victim. False: the slot is empty.
bool CacheCore::pin_victim(PinSlot& slot, CacheEntry& entry, const Extent& asked, bool equal) {
  const Range range = range_of(asked);
  if (entry.reopen() && (equal ? entry.is_open_as(range) : entry.is_open_for(range))) return true;
  if (!readers_.unpin(slot)) unpin_locked(entry, &slot, true);
  return false;
}

// Called by hits, because blocks that are hit cause no insertions, which otherwise move the items.
void CacheCore::help_to_grow() {
  constexpr std::size_t kCells = 256;
  const MutexLock lock(mutex_);
  index_.move_some(kCells);
}

// `equal_first`: a block of exactly the extent is likely.
bool CacheCore::hit(const Extent& extent, Block& block, bool equal_first) {
  if (!hits_open() || !extent.valid() || extent.length.value == 0) return false;
  Reader* const reader = readers_.mine();
  if (reader == nullptr) return false;
  const Range range = range_of(extent);
  if (index_.is_growing()) [[unlikely]]
    help_to_grow();
  CacheEntry* entry = equal_first ? index_.racing_equal(range) : nullptr;
  if (entry == nullptr) entry = find_wider(range);
  if (entry == nullptr) return false;
  PinSlot* const slot = pin_open<false>(*reader, *entry, range, extent);
  if (slot == nullptr) return false;
  block = Block(*this, *entry, *slot, extent, entry->bytes_from(range.offset));
  if (growth_due_.load()) [[unlikely]]
    pump(true);
  return true;
}

// The shortest path of a hit, and nothing else. A thread has a reader only if hits are open. The
// extent is not checked, since an invalid one has no block of exactly its range.
[[gnu::always_inline]] inline Block CacheCore::access(const Extent& asked,
                                                      const AccessOptions& options) {
  Reader* const reader = readers_.last();
  if (reader == nullptr || asked.object == nullptr || options.plan != nullptr || !origin_.here() ||
      growth_due_.load()) [[unlikely]]
    return access_somehow(asked, options);
  // Copied word by word, as the caller wrote it: a wider load would wait for the stores.
  const Extent extent{asked.object, asked.offset, asked.length};
  const Range range = range_of(extent);
  CacheEntry* const entry = index_.racing_equal(range);
  PinSlot* const slot = entry == nullptr ? nullptr : pin_open<true>(*reader, *entry, range, asked);
  if (slot == nullptr) [[unlikely]] {
    // A copy made here, since the caller's extent may no longer exist.
    return access_somehow({extent.object, extent.offset, extent.length}, options);
  }
  return {*this, *entry, *slot, extent, entry->bytes()};
}

// An access in a cache with blocks that continue into another stretch.
void CacheShards::access_across(const Extent& extent, Block& block, const AccessOptions& options,
                                CacheCore::Started& all) {
  CacheCore& own = of(extent);
  if (!here() || !extent.valid() || extent.length.value == 0) {
    return own.access_all({&extent, 1}, {&block, 1}, options, &all);
  }
  note(extent);
  if (!own.may_cover(range_of(extent)) && find_before(extent, options, block)) {
    own.use(range_of(extent), options);
  } else {
    own.access_all({&extent, 1}, {&block, 1}, options, &all);
  }
  if (!goes_on(extent)) return;
  // Plans of the other stretches: their items may lie in this extent.
  const Range range = range_of(extent);
  any_shard(range.object, (range.offset >> shift_) + 1, (range.end() - 1) >> shift_,
            [&](CacheCore& core) {
              if (&core != &own) core.use(range, options);
              return false;
            });
}

// Looks into the shards of earlier stretches, where a block that covers the extent may begin.
bool CacheShards::find_before(const Extent& extent, const AccessOptions& options,
                              Block& block) const {
  const Range range = range_of(extent);
  const std::uint64_t longest = longest_.load();
  const std::uint64_t first = (range.offset - std::min(range.offset, longest)) >> shift_;
  return any_shard(range.object, first, range.offset >> shift_, [&](CacheCore& core) {
    return core.may_cover(range) && core.find_there(extent, options, block);
  });
}

inline Block CacheShards::access(const Extent& extent, const AccessOptions& options) {
  if (longest_.load() == 0 && !goes_on(extent)) [[likely]]
    return of(extent).access(extent, options);
  const Extent asked = extent;  // a callback that runs meanwhile may free the caller's
  Block block;
  CacheCore::Started all(options.priority);
  access_across(asked, block, options, all);
  return block;
}

Block Cache::access(const Extent& extent) {
  static constinit const AccessOptions kDefault;
  if (only_ != nullptr) [[likely]]
    return only_->access(extent, kDefault);
  return shards_->access(extent, kDefault);
}

Block Cache::access(const Extent& extent, const AccessOptions& options) {
  if (only_ != nullptr) [[likely]]
    return only_->access(extent, options);
  return shards_->access(extent, options);
}

bool CacheCore::may_cover(const Range& range) const {
  bool any = false;
  index_.racing(range, [&](CacheEntry&) {
    any = true;
    return false;
  });
  return any;
}

bool CacheCore::find_there(const Extent& extent, const AccessOptions& options, Block& block) {
  if (options.plan == nullptr && hit(extent, block, false)) return true;
  try {
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    if (hits_open_) readers_.join();
    serve(extent, options, block, deferred);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (block.missing_) {
    block = Block{};
    return false;
  }
  if (take_pump_due()) pump(true);
  return true;
}

void CacheCore::use(const Range& range, const AccessOptions& options) {
  {
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    if (plans_.empty()) return;
    use_planned(range, options, deferred);
  }
  if (take_pump_due()) pump(true);
}

Block CacheCore::access_somehow(const Extent& asked, const AccessOptions& options) {
  const Extent extent = asked;  // a callback that runs meanwhile may free the caller's
  Block block;
  if (options.plan != nullptr || !hit(extent, block, false))
    access({&extent, 1}, {&block, 1}, options, nullptr);
  return block;
}

// In a child of fork() the slot is the child's own.
void Block::let_go() noexcept {
  const bool own = slot_ != nullptr && Readers::own(*slot_);
  if (own && cache_->readers_.unpin(*slot_)) [[likely]]
    return;
  cache_->unpin_locked(*entry_, slot_, own);
}

// Pins the blocks of `extents` that need no lock. False: call access() for the others. The memory
// that several lookups read is prefetched: first the cell, then the entry that the cell points to.
bool CacheCore::hit_all(std::span<const Extent> extents, std::span<Block> blocks) {
  constexpr std::size_t kAhead = 4;
  const auto range = [&](std::size_t i) {
    return extents[i].object == nullptr ? Range{} : range_of(extents[i]);
  };
  bool all = true;
  for (std::size_t i = 0; i < extents.size() + 2 * kAhead; ++i) {
    if (i < extents.size()) index_.ask_for_cell(range(i));
    if (i >= kAhead && i - kAhead < extents.size()) index_.ask_for_item(range(i - kAhead));
    if (i >= 2 * kAhead && !hit(extents[i - 2 * kAhead], blocks[i - 2 * kAhead], true)) all = false;
  }
  return all;
}

void CacheCore::access_all(std::span<const Extent> extents, std::span<Block> blocks,
                           const AccessOptions& options, Started* together) {
  if (options.plan != nullptr || !hit_all(extents, blocks)) {
    access(extents, blocks, options, together);
  }
}

// Neighbours of one shard are one access. The copies of all shards are submitted together.
void CacheShards::access(std::span<const Extent> extents, std::span<Block> blocks,
                         const AccessOptions& options) {
  CacheCore::Started all(options.priority);
  for (std::size_t begin = 0, end = 0; begin < extents.size(); begin = end) {
    CacheCore& core = of(extents[begin]);
    bool across = longest_.load() > 0;
    for (; end < extents.size() && &of(extents[end]) == &core; ++end) {
      across = across || goes_on(extents[end]);
    }
    if (!across) {
      core.access_all(extents.subspan(begin, end - begin), blocks.subspan(begin, end - begin),
                      options, &all);
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) access_across(extents[i], blocks[i], options, all);
  }
}

void Cache::access(std::span<const Extent> extents, std::span<Block> blocks,
                   const AccessOptions& options) {
  CHECK(extents.size() == blocks.size());
  for (Block& block : blocks) block = Block{};
  if (only_ != nullptr) return only_->access_all(extents, blocks, options, nullptr);
  shards_->access(extents, blocks, options);
}

// Releases a pin under the lock. `slot` null: the pin was counted. `own`: this thread's slot, empty
// already.
void CacheCore::unpin_locked(CacheEntry& entry, PinSlot* slot, bool own) {
  if (!origin_.here()) return;
  {
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    bool counted = true;
    if (slot != nullptr)
      counted = own ? readers_.unpin_asked(*slot) : readers_.unpin_elsewhere(*slot);
    if (counted) {
      unpin(entry, deferred);
    } else {
      if (stalled_) offer(entry);
      go_on(deferred);
    }
  }
  if (take_pump_due()) pump(false);
}

// Pins in a slot if one is free, so that the release needs no lock. Otherwise the pin is counted. A
// block that plans have used up is always counted: unpin() offers it for eviction.
void CacheCore::pin_in_slot(CacheEntry& entry, Block& block) {
  const bool used_up = entry.by_prefetch != 0 && entry.planned == 0;
  const bool counted = used_up || entry.has(CacheEntry::kCounted);
  block.slot_ = counted ? nullptr : free_slot();
  if (block.slot_ == nullptr) {
    pin(entry);
  } else {
    readers_.pin(*block.slot_, entry);
  }
}

PinSlot* CacheCore::free_slot() {
  Reader* const reader = readers_.mine();
  if (reader == nullptr) return nullptr;
  if (PinSlot* const slot = reader->free_slot()) return slot;
  try {
    Reader* const more = readers_.join_more();
    return more == nullptr ? nullptr : more->free_slot();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Makes `pins` of these entries count all their pins, until open().
void CacheCore::count_pins(std::span<CacheEntry* const> entries) {
  bool any = false;
  for (CacheEntry* entry : entries) {
    if (entry->claim()) continue;
    entry->word.fetch_or(CacheEntry::kCounted);
    any = true;
  }
  if (!any) return;
  readers_.fence();
  count_pins_of(CacheEntry::kCounted);
}

// D3 to D5 for all entries with that flag.
void CacheCore::count_pins_of(std::uint32_t flag) {
  const auto wanted = [flag](const CacheEntry& entry) { return entry.has(flag); };
  readers_.count(wanted, [this](CacheEntry& entry) {
    mutex_.assert_held();
    pin(entry);
  });
}

// After an access to a ready block: the next access needs no lock, unless a plan watches the block.
// A node beyond its budget needs the last release of each block under the lock.
void CacheCore::open(CacheEntry& entry) {
  if (CacheEntry::is_open(entry.word.load()) || !hits_open_) return;
  const Node& node = nodes_[entry.node];
  spare(entry);
  if (node.frames.capacity() > node.budget || node.used > node.budget) return;
  // The first use of a prefetched block is counted under the lock.
  if (entry.by_prefetch != 0 && entry.used == 0) return;
  const bool noticed =
      entry.has(CacheEntry::kNoticed) && (entry.planned > 0 || are_concerned(entry.range()));
  const std::uint32_t ready =
      static_cast<std::uint32_t>(BlockState::ready) | (entry.word.load() & CacheEntry::kOnGpu);
  entry.word = noticed ? ready | CacheEntry::kNoticed : ready;
}

// Marks a new block if a plan contains it, so that the plan learns of accesses.
void CacheCore::notice(CacheEntry& entry) {
  if (are_concerned(entry.range())) entry.word.fetch_or(CacheEntry::kNoticed);
}

// Whether all of these can be dropped now. Counts their pins.
bool CacheCore::may_go(std::span<Frame* const> frames, bool planned_too) {
  asked_.clear();
  for (Frame* frame : frames) asked_.push_back(static_cast<CacheEntry*>(frame));
  count_pins(asked_);
  return std::ranges::all_of(
      asked_, [&](const CacheEntry* entry) { return droppable(*entry, planned_too); });
}

}  // namespace headrace
