// SPDX-License-Identifier: Apache-2.0
// The blocks of a memory that plans fetched or will use, by the time until their next use. The
// block with the furthest next use is evicted first (Belady's order).
//
// Blocks lie in buckets, as in predictive buffer management (Świtakowski et al., VLDB '12): a
// quarter of an octave of time each, and the last one for blocks without a next use. Time passes,
// so a block may come to lie too far: use is_at() before its eviction. In a bucket the newest block
// goes first, since the others have come nearer. The oldest goes first among blocks without one.
// Blocks that are put aside are in no bucket that a search visits.
//
// It allocates nothing: blocks are linked by the fields of the eviction order, which has none of
// them. Guarded by the shard's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cache/structures/entry.h"
#include "core/intrusive_list.h"
#include "headrace/units.h"

namespace headrace {

class NextUses {
 public:
  // `ahead`: the time until the next use; nothing: there is none.
  void insert(CacheEntry& entry, std::optional<Nanoseconds> ahead);
  void remove(CacheEntry& entry);
  // Bytes of the blocks that have a next use.
  std::uint64_t bytes() const { return bytes_; }
  // Whether a block lies where insert() would put it now.
  static bool is_at(const CacheEntry& entry, std::optional<Nanoseconds> ahead) {
    return bucket_of(entry) == bucket_of(ahead);
  }
  // The block to evict first; null: there is none.
  CacheEntry* first() const { return size_ == 0 ? nullptr : first_from(kNever); }
  // The block to evict after `entry`.
  CacheEntry* after(const CacheEntry& entry) const;
  // A pinned block is not returned by first() and after() until it is inserted again. Requires:
  // first() or after() has returned it.
  void put_aside(CacheEntry& entry);
  static bool is_aside(const CacheEntry& entry) {
    return bucket_of(entry) == kAside || entry.of_order == (kSet | kNever);
  }
  // Plans use blocks later, or no more: insert again all that next_old() returns, one by one.
  // Blocks without a next use stay.
  void sort_again() { sort_again_ = true; }
  CacheEntry* next_old();

 private:
  // From kLeast on, four buckets for each doubling. The last ones: 36 minutes and more, put aside,
  // and never.
  static constexpr std::uint64_t kLeast = 1 << 10;
  static constexpr std::uint8_t kAside = 126;
  static constexpr std::uint8_t kNever = 127;
  // In of_order: the bucket, and above it the number of the set of buckets. Of kNever: 1 if the
  // block is aside.
  static constexpr std::uint8_t kSet = 128;
  using Bucket = IntrusiveList<EvictionLinks, &EvictionLinks::newer, &EvictionLinks::older>;
  using Buckets = std::array<Bucket, kNever + 1>;

  static std::uint8_t bucket_of(std::optional<Nanoseconds> ahead);
  static std::uint8_t bucket_of(const CacheEntry& entry) { return entry.of_order & kNever; }
  Bucket& list_of(const CacheEntry& entry) {
    return sets_[entry.of_order / kSet][bucket_of(entry)];
  }
  CacheEntry* first_from(int bucket) const;

  // One set is in use. After sort_again() the other one has the blocks to be inserted again. Both
  // use kNever of the first one: a plan's end must not cost time for each block of earlier plans.
  std::array<Buckets, 2> sets_;
  std::uint8_t current_ = 0;
  std::uint8_t oldest_ = kNever;  // all buckets below it of the other set are empty
  bool sort_again_ = false;
  std::uint64_t bytes_ = 0;
  std::size_t size_ = 0;
};

}  // namespace headrace
