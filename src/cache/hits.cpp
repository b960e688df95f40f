// A ready block found, pinned and let go without the lock, and how such pins are counted when a
// block is about to go. Why it is right stands at the head of readers.h.
#include <algorithm>

#include "cache/core.h"
#include "core/check.h"

namespace headrace {

// The block that find() would give, if it and all that cover the range are open; or one that is
// not, which the caller will see.
inline CacheEntry* CacheCore::find_open(const Range& range) const {
  if (CacheEntry* const equal = index_.racing_equal(range)) return equal;
  return find_wider(range);
}

CacheEntry* CacheCore::find_wider(const Range& range) const {
  CacheEntry* best = nullptr;
  const bool whole = index_.racing(range, [&](CacheEntry& entry) {
    if (!CacheEntry::is_open(entry.word.load())) {
      best = nullptr;
      return false;
    }
    const std::uint64_t length = entry.length;
    if (best == nullptr || length < best->length) best = &entry;
    return length != range.length;  // nothing is better
  });
  return whole ? best : nullptr;
}

inline bool CacheCore::hit(const Extent& extent, Block& block) {
  const Extent wanted = extent;
  if (!hits_open_ || !origin_.here() || !wanted.valid() || wanted.length.value == 0) return false;
  Reader* const reader = readers_.mine();
  if (reader == nullptr) return false;
  const Range range{wanted.object->id(), wanted.offset, wanted.length.value};
  CacheEntry* const entry = find_open(range);
  if (entry == nullptr) return false;
  PinSlot* const slot = reader->free_slot();
  if (slot == nullptr) return false;
  readers_.pin(*slot, *entry);
  if (!CacheEntry::is_open(entry->word.load()) || !entry->range().contains(range)) {
    if (!readers_.unpin(*slot)) unpin_locked(*entry, slot, true);
    return false;
  }
  block.cache_ = this;
  block.entry_ = entry;
  block.slot_ = slot;
  block.extent_ = wanted;
  reader->hits = reader->hits + 1;
  // Pairs with nothing: a mark that comes late is as good. Not stored again: others read the line.
  if (!entry->visited.load(std::memory_order_relaxed)) entry->visited = true;
  if (pump_due_.load() || growth_due_.load()) [[unlikely]]
    go_on_with_plans(true);
  return true;
}

inline void CacheCore::release(Block& block) {
  if (!origin_.here()) return;
  PinSlot* const slot = block.slot_;
  const bool own = slot != nullptr && Readers::own(*slot);
  if (!own || !readers_.unpin(*slot)) unpin_locked(*block.entry_, slot, own);
  if (pump_due_.load()) [[unlikely]]
    go_on_with_plans(false);
}

Block Cache::access(Extent extent, const AccessOptions& options) {
  Block block;
  if (options.plan != nullptr || !core_->hit(extent, block)) [[unlikely]] {
    core_->access({&extent, 1}, {&block, 1}, options);
  }
  return block;
}

// The blocks of `extents` that can be had without the lock; false: call access() for the others.
// What the lookups of several extents wait for in memory is asked for ahead, the cell first and
// what it names when that is there.
bool CacheCore::hit_all(std::span<const Extent> extents, std::span<Block> blocks) {
  constexpr std::size_t kAhead = 4;
  const auto range_of = [&](std::size_t i) {
    const Extent& extent = extents[i];
    return Range{extent.object == nullptr ? ObjectId{} : extent.object->id(), extent.offset,
                 extent.length.value};
  };
  bool all = true;
  for (std::size_t i = 0; i < extents.size() + 2 * kAhead; ++i) {
    if (i < extents.size()) index_.ask_for_cell(range_of(i));
    if (i >= kAhead && i - kAhead < extents.size()) index_.ask_for_item(range_of(i - kAhead));
    if (i >= 2 * kAhead && !hit(extents[i - 2 * kAhead], blocks[i - 2 * kAhead])) all = false;
  }
  return all;
}

void Cache::access(std::span<const Extent> extents, std::span<Block> blocks,
                   const AccessOptions& options) {
  CHECK(extents.size() == blocks.size());
  for (Block& block : blocks) block = Block{};
  if (options.plan != nullptr || !core_->hit_all(extents, blocks)) {
    core_->access(extents, blocks, options);
  }
}

Block::~Block() {
  if (entry_ != nullptr) cache_->release(*this);
}

void CacheCore::go_on_with_plans(bool may_grow) {
  if (take_pump_due() || (may_grow && growth_due_)) pump(may_grow);
}

// Gives a pin back under the lock: one in a slot, which is empty already if it is this thread's
// own, or a counted one (no slot).
void CacheCore::unpin_locked(CacheEntry& entry, PinSlot* slot, bool own) {
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

// From here on `pins` of these entries has all their pins, until open().
void CacheCore::count_pins(std::span<CacheEntry* const> entries) {
  bool any = false;
  for (CacheEntry* entry : entries) {
    if (entry->has(CacheEntry::kCounted)) continue;
    entry->word.fetch_or(CacheEntry::kCounted);
    any = true;
  }
  if (!any) return;
  const auto wanted = [](const CacheEntry& entry) { return entry.has(CacheEntry::kCounted); };
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
  const auto ready = static_cast<std::uint32_t>(BlockState::ready);
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
