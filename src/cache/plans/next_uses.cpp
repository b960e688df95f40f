// SPDX-License-Identifier: Apache-2.0
#include "cache/plans/next_uses.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace headrace {

std::uint8_t NextUses::bucket_of(std::optional<Nanoseconds> ahead) {
  if (!ahead) return kNever;
  const auto time = static_cast<std::uint64_t>(std::max(ahead->count(), std::int64_t{0}));
  if (time < kLeast) return 0;
  const int octave = static_cast<int>(std::bit_width(time / kLeast)) - 1;
  const auto quarter = static_cast<int>(time >> (octave + 8) & 3);
  return static_cast<std::uint8_t>(std::min(1 + octave * 4 + quarter, kAside - 1));
}

void NextUses::insert(CacheEntry& entry, std::optional<Nanoseconds> ahead) {
  DCHECK(entry.by_next_use == 0 && entry.planned == 0);
  entry.by_next_use = 1;
  ++size_;
  entry.visited = false;
  entry.of_order = static_cast<std::uint8_t>(bucket_of(ahead) | (ahead ? current_ * kSet : 0));
  if (ahead) {
    list_of(entry).push_front(entry);
    bytes_ += entry.length;
  } else {
    list_of(entry).push_back(entry);
  }
}

void NextUses::remove(CacheEntry& entry) {
  list_of(entry).remove(entry);
  if (bucket_of(entry) != kNever) bytes_ -= entry.length;
  entry.by_next_use = 0;
  --size_;
}

void NextUses::put_aside(CacheEntry& entry) {
  const std::uint8_t aside = bucket_of(entry) == kNever ? kNever | kSet : kAside | current_ * kSet;
  list_of(entry).remove(entry);
  entry.of_order = aside;
  list_of(entry).push_back(entry);
}

CacheEntry* NextUses::first_from(int bucket) const {
  for (; bucket >= 0; --bucket) {
    if (bucket == kAside) continue;
    const Buckets& buckets = sets_[bucket == kNever ? 0 : current_];
    if (EvictionLinks* const links = buckets[static_cast<std::size_t>(bucket)].front()) {
      return static_cast<CacheEntry*>(links);
    }
  }
  return nullptr;
}

CacheEntry* NextUses::after(const CacheEntry& entry) const {
  if (EvictionLinks* const next = Bucket::next(entry)) return static_cast<CacheEntry*>(next);
  return first_from(bucket_of(entry) - 1);
}

CacheEntry* NextUses::next_old() {
  for (;;) {
    Buckets& old = sets_[1 - current_];
    // The blocks of a bucket keep their order.
    for (; oldest_ < kNever; ++oldest_) {
      if (EvictionLinks* const links = old[oldest_].back()) return static_cast<CacheEntry*>(links);
    }
    if (!sort_again_) return nullptr;
    sort_again_ = false;
    current_ = 1 - current_;
    oldest_ = 0;
  }
}

}  // namespace headrace
