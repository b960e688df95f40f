// SPDX-License-Identifier: Apache-2.0
// A ready block found, pinned and let go without the lock, and how such pins are counted when a
// block is about to go. Why it is right stands at the head of readers.h.
#include <algorithm>

#include "cache/core.h"
#include "cache/shards.h"
#include "core/check.h"

namespace headrace {

// The block that find() would give, if it and all that cover the range are open; or one that is
// not, which the caller will see.
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

// P1 to P4: the slot that pins what was found without the lock; null: none is free, or it is not
// what was wanted by now. kEqual: a block of exactly that range is. `asked` is the same range,
// which stays in registers.
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
  // Pairs with nothing: a mark that comes late is as good. Not stored again: others read the line.
  if (!entry.visited.load(std::memory_order_relaxed)) {
    entry.visited.store(true, std::memory_order_relaxed);
  }
  return slot;
}

// The same where it was not open after P2, but may be a victim; false: then the slot is empty
// again.
bool CacheCore::pin_victim(PinSlot& slot, CacheEntry& entry, const Extent& asked, bool equal) {
  const Range range = range_of(asked);
  if (entry.reopen() && (equal ? entry.is_open_as(range) : entry.is_open_for(range))) return true;
  if (!readers_.unpin(slot)) unpin_locked(entry, &slot, true);
  return false;
}

// Blocks that are hit need not be inserted any more.
void CacheCore::help_to_grow() {
  constexpr std::size_t kCells = 256;
  const MutexLock lock(mutex_);
  index_.move_some(kCells);
}

// `equal_first`: most likely there is a block of exactly the extent.
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

// The shortest way stands here alone. A thread has a reader only where hits are open. The extent is
// not asked whether it is valid: there would be no block of exactly it.
[[gnu::always_inline]] inline Block CacheCore::access(const Extent& asked,
                                                      const AccessOptions& options) {
  Reader* const reader = readers_.last();
  if (reader == nullptr || asked.object == nullptr || options.plan != nullptr || !origin_.here() ||
      growth_due_.load()) [[unlikely]]
    return access_somehow(asked, options);
  // Word by word, as the caller wrote it: a wider load would wait for its stores.
  const Extent extent{asked.object, asked.offset, asked.length};
  const Range range = range_of(extent);
  CacheEntry* const entry = index_.racing_equal(range);
  PinSlot* const slot = entry == nullptr ? nullptr : pin_open<true>(*reader, *entry, range, asked);
  if (slot == nullptr) [[unlikely]] {
    // A copy of its own, made here: the caller's may be gone.
    return access_somehow({extent.object, extent.offset, extent.length}, options);
  }
  return {*this, *entry, *slot, extent, entry->bytes()};
}

// Where blocks go on from one stretch into the next.
Block CacheShards::access_across(const Extent& extent, const AccessOptions& options) {
  CacheCore& own = of(extent);
  if (!here() || !extent.valid()) return own.access(extent, options);
  note(extent);
  Block block;
  if (!own.may_cover(range_of(extent)) && find_before(extent, options, block)) return block;
  return own.access(extent, options);
}

// Looks into the shards of the stretches where a block that covers the extent may begin.
bool CacheShards::find_before(const Extent& extent, const AccessOptions& options,
                              Block& block) const {
  const Range range = range_of(extent);
  const std::uint64_t stretch = extent.offset >> shift_;
  const std::uint64_t longest = longest_.load();
  const std::uint64_t first = (extent.offset - std::min(extent.offset, longest)) >> shift_;
  const std::uint64_t looks = std::min<std::uint64_t>(stretch - first, mask_);
  for (std::uint64_t back = 1; back <= looks; ++back) {
    CacheCore& core = *cores_[number_of(range.object, (stretch - back) << shift_)];
    if (core.may_cover(range) && core.find_there(extent, options, block)) return true;
  }
  return false;
}

inline Block CacheShards::access(const Extent& extent, const AccessOptions& options) {
  if (longest_.load() > 0 || goes_on(extent)) [[unlikely]]
    return access_across(extent, options);
  return of(extent).access(extent, options);
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
  if (!block.missing_) return true;
  block = Block{};
  return false;
}

Block CacheCore::access_somehow(const Extent& asked, const AccessOptions& options) {
  const Extent extent = asked;  // a callback that runs meanwhile may free the caller's
  Block block;
  if (options.plan != nullptr || !hit(extent, block, false))
    access({&extent, 1}, {&block, 1}, options);
  return block;
}

// In a child of fork() the slot is the child's own.
void Block::let_go() noexcept {
  const bool own = slot_ != nullptr && Readers::own(*slot_);
  if (own && cache_->readers_.unpin(*slot_)) [[likely]]
    return;
  cache_->unpin_locked(*entry_, slot_, own);
}

// The blocks of `extents` that can be had without the lock; false: call access() for the others.
// What the lookups of several extents wait for in memory is asked for ahead, the cell first and
// what it names when that is there.
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
                           const AccessOptions& options) {
  if (options.plan != nullptr || !hit_all(extents, blocks)) access(extents, blocks, options);
}

// Neighbours that belong to one shard are one access.
void CacheShards::access(std::span<const Extent> extents, std::span<Block> blocks,
                         const AccessOptions& options) {
  for (std::size_t begin = 0, end = 0; begin < extents.size(); begin = end) {
    CacheCore& core = of(extents[begin]);
    bool across = longest_.load() > 0;
    for (; end < extents.size() && &of(extents[end]) == &core; ++end) {
      across = across || goes_on(extents[end]);
    }
    if (!across) {
      core.access_all(extents.subspan(begin, end - begin), blocks.subspan(begin, end - begin),
                      options);
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) blocks[i] = access_across(extents[i], options);
  }
}

void Cache::access(std::span<const Extent> extents, std::span<Block> blocks,
                   const AccessOptions& options) {
  CHECK(extents.size() == blocks.size());
  for (Block& block : blocks) block = Block{};
  if (only_ != nullptr) return only_->access_all(extents, blocks, options);
  shards_->access(extents, blocks, options);
}

// Gives a pin back under the lock: one in a slot, which is empty already if it is this thread's
// own, or a counted one (no slot).
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

// In a slot, if there is one, so that it is let go without the lock; else counted, as for a block
// that plans have used up: unpin() offers it.
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

// From here on `pins` of these entries has all their pins, until open().
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

// A ready block that was accessed: the next access needs no lock, unless somebody wants to know of
// it. A node beyond its budget waits for the last pin of each block.
void CacheCore::open(CacheEntry& entry) {
  if (CacheEntry::is_open(entry.word.load()) || !hits_open_) return;
  const Node& node = nodes_[entry.node];
  spare(entry);
  if (node.frames.capacity() > node.budget || node.used > node.budget) return;
  // The first use of what a plan fetched is counted under the lock.
  if (entry.by_prefetch != 0 && entry.used == 0) return;
  const bool noticed =
      entry.has(CacheEntry::kNoticed) && (entry.planned > 0 || are_concerned(entry.range()));
  const std::uint32_t ready =
      static_cast<std::uint32_t>(BlockState::ready) | (entry.word.load() & CacheEntry::kOnGpu);
  entry.word = noticed ? ready | CacheEntry::kNoticed : ready;
}

// Accesses to a new block are told to the plans that have it.
void CacheCore::notice(CacheEntry& entry) {
  if (are_concerned(entry.range())) entry.word.fetch_or(CacheEntry::kNoticed);
}

// Whether all of these can be dropped now, all their pins counted.
bool CacheCore::may_go(std::span<Frame* const> frames, bool planned_too) {
  asked_.clear();
  for (Frame* frame : frames) asked_.push_back(static_cast<CacheEntry*>(frame));
  count_pins(asked_);
  return std::ranges::all_of(
      asked_, [&](const CacheEntry* entry) { return droppable(*entry, planned_too); });
}

}  // namespace headrace
