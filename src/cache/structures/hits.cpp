// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/hits.h"

#include <algorithm>
#include <new>

namespace headrace {

CacheEntry* Hits::find_wider(const Range& range) const {
  CacheEntry* best = nullptr;
  const bool whole = index.racing(range, [&](CacheEntry& entry) {
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

bool Hits::may_cover(const Range& range) const {
  bool any = false;
  index.racing(range, [&](CacheEntry&) {
    any = true;
    return false;
  });
  return any;
}

// P3 and P4 again for an entry that was not open, but may be a victim.
bool Hits::reopen(CacheEntry& entry, const Extent& asked, bool equal) {
  const Range range = range_of(asked);
  return entry.reopen() && (equal ? entry.is_open_as(range) : entry.is_open_for(range));
}

CacheEntry* Hits::find(const Range& range) const {
  CacheEntry* best = nullptr;
  bool best_ready = false;
  index.covering(range, [&](CacheEntry& entry) {
    const bool ready = entry.now() == BlockState::ready;
    if (best == nullptr || (ready && !best_ready) ||
        (ready == best_ready && entry.length < best->length)) {
      best = &entry;
      best_ready = ready;
    }
    return !(ready && entry.length == range.length);  // nothing is better
  });
  return best;
}

// A block that plans have used up is always counted: its last release offers it for eviction.
PinSlot* Hits::pin_in_slot(CacheEntry& entry) {
  const bool used_up = entry.by_prefetch != 0 && entry.planned == 0;
  PinSlot* const slot = used_up || entry.has(CacheEntry::kCounted) ? nullptr : free_slot();
  if (slot == nullptr) {
    pin(entry);
  } else {
    readers.pin(*slot, entry);
  }
  return slot;
}

PinSlot* Hits::free_slot() {
  Reader* const reader = readers.mine();
  if (reader == nullptr) return nullptr;
  if (PinSlot* const slot = reader->free_slot()) return slot;
  try {
    Reader* const more = readers.join_more();
    return more == nullptr ? nullptr : more->free_slot();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Hits::pin(CacheEntry& entry) {
  ++pins_;
  if (entry.pins++ == 0) pinned_bytes_[entry.tenant] += entry.length;
}

bool Hits::unpin(CacheEntry& entry) {
  --pins_;
  if (--entry.pins > 0) return false;
  if (entry.data != nullptr) pinned_bytes_[entry.tenant] -= entry.length;
  return true;
}

void Hits::count_pins(std::span<CacheEntry* const> entries) {
  bool any = false;
  for (CacheEntry* entry : entries) {
    if (entry->claim()) continue;
    entry->word.fetch_or(CacheEntry::kCounted);
    any = true;
  }
  if (!any) return;
  readers.fence();
  count_pins_of(CacheEntry::kCounted);
}

void Hits::count_pins_of(std::uint32_t flag) {
  const auto wanted = [flag](const CacheEntry& entry) { return entry.has(flag); };
  readers.count(wanted, [this](CacheEntry& entry) { pin(entry); });
}

bool Hits::may_go(std::span<Frame* const> frames, bool planned_too) {
  asked_.clear();
  for (Frame* frame : frames) asked_.push_back(static_cast<CacheEntry*>(frame));
  count_pins(asked_);
  return std::ranges::all_of(
      asked_, [&](const CacheEntry* entry) { return entry->droppable(planned_too); });
}

Hits::ByTenant Hits::pinned_bytes() const {
  std::vector<CacheEntry*> entries = readers.pinned();
  std::ranges::sort(entries);
  const auto repeated = std::ranges::unique(entries);
  entries.erase(repeated.begin(), repeated.end());
  ByTenant bytes = pinned_bytes_;
  for (const CacheEntry* entry : entries) {
    if (entry->pins == 0 && entry->data != nullptr) bytes[entry->tenant] += entry->length;
  }
  return bytes;
}

}  // namespace headrace
