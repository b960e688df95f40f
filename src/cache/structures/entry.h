// SPDX-License-Identifier: Apache-2.0
// One block in the cache, and its copy while that is in flight.
//
// Life of an entry:
// - It is made `filling` and put into the index under the lock, before its copy is submitted, so
//   that no extent is copied twice.
// - The end of the transfer sets it once, to ready or failed.
// - It leaves the index when it is evicted, invalidated or failed. Then it is `detached`: no new
//   access finds it, and a ready one becomes `evicting`.
// - It returns to the pool when it is detached, unpinned and not filling.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cache/structures/frames.h"
#include "cache/structures/index.h"
#include "headrace/cache.h"
#include "headrace/eviction.h"
#include "headrace/mover.h"
#include "headrace/object.h"

namespace headrace {

// Requires: the extent has an object.
[[gnu::always_inline]] inline Range range_of(const Extent& extent) {
  return {extent.object->id(), extent.offset, extent.length.value};
}

// Needed from the start of a copy to its end. A failed copy keeps it while a Block may ask why. A
// block keeps it while it is held for writing or dirty, so that its write-back needs no memory.
struct Fill {
  Extent to;                         // in the cache
  std::optional<Transfer> transfer;  // once submitted, unless it was done then
  Range source;
  Fill* next = nullptr;  // in the list of those in flight, of dirty ones, or of unused ones
  Fill* previous = nullptr;
  Priority priority = Priority::demand;
  bool cancelled = false;                    // its result is not wanted any more
  std::optional<Error> error;                // of the copy, or of the last write-back
  std::vector<std::function<void()>> thens;  // to be called at its end
  struct CacheEntry* entry = nullptr;        // of a dirty block
  std::uint64_t changed = 0;                 // when the block became dirty: 1, 2, ... in its shard
  bool due = false;                          // to be written back next
  bool for_space = false;                    // and then evicted
  // For a move (chain.h): the entry whose bytes are copied, where these lie, and the direction.
  struct CacheEntry* from = nullptr;
  Extent bytes;
  bool up = false;
};

// The fields that a hit reads besides the frame. With the frame's data and length: 48 bytes.
struct HitPart {
  // Written before the word becomes ready; unchanged while it is ready.
  Relaxed<ObjectId> id{};
  Relaxed<std::uint64_t> offset = 0;
  ChainLink<struct CacheEntry> next_in_cell;  // of the index
  // A BlockState and flags. Changed under the lock; kAwaited also without it.
  std::atomic<std::uint32_t> word{0};
  std::uint32_t pins = 0;  // Blocks, except those in slots (readers.h)

  // Only GPUs reach its frame. In the byte of the state, so that one comparison checks both.
  static constexpr std::uint32_t kOnGpu = 1U << 7;
  // A thread sleeps on the word. Without this flag the end of a copy makes no system call.
  static constexpr std::uint32_t kAwaited = 1U << 8;
  // All its pins are in `pins`, and every access to it takes the lock.
  static constexpr std::uint32_t kCounted = 1U << 9;
  // A plan may use accesses to it, so they take the lock.
  static constexpr std::uint32_t kNoticed = 1U << 10;
  // With kCounted: chosen as a victim. A hit may make it open again without the lock.
  static constexpr std::uint32_t kVictim = 1U << 11;
  // With kCounted: D1 is done, and the thread that did it has yet to do D2 to D5.
  static constexpr std::uint32_t kUncounted = 1U << 12;
};

struct CacheEntry final : Frame, HitPart, EvictionLinks {
  // These lie in the tail padding of EvictionLinks. Guarded by the cache's lock.
  std::uint8_t by_prefetch : 1 = 0;
  std::uint8_t used : 1 = 0;          // accessed at least once
  std::uint8_t detached : 1 = 0;      // not in the index
  std::uint8_t chosen : 1 = 0;        // among the victims of its node
  std::uint8_t written : 1 = 0;       // a Block holds it for writing: no other Block pins it
  std::uint8_t write_wanted : 1 = 0;  // a thread waits to write it
  std::uint8_t dirty : 1 = 0;         // its bytes are newer than its source's
  std::uint8_t cleaning : 1 = 0;      // dirty, and its write-back is in flight
  // Index of the node in the cache. Unchanged while a Block holds the entry, so that its thread may
  // read it without the lock.
  std::uint8_t node = 0;
  std::uint32_t moving : 1 = 0;       // the first entry of a move (chain.h)
  std::uint32_t by_next_use : 1 = 0;  // in NextUses, not in the eviction order
  std::uint32_t tenant : 5 = 0;       // whose access brought it; set with the frame
  std::uint32_t again : 1 = 0;        // inserted into the order, or left it, as Use::again
  std::uint32_t planned : 24 = 0;     // items of plans that protect it

  static constexpr std::size_t kMostNodes = 256;
  static constexpr std::size_t kMostTenants = 32;  // with those that name none
  static constexpr std::uint32_t kMostPlanned = (1U << 24) - 1;

  const Object* object = nullptr;  // for events; may be destroyed, so never dereferenced
  Fill* fill = nullptr;            // from the pool; while filling, and for a failed block

  CacheEntry() = default;
  CacheEntry(const CacheEntry&) = delete;
  CacheEntry& operator=(const CacheEntry&) = delete;

  // The copy is whole, whether in the index or not.
  bool is_whole() const { return now() == BlockState::ready || now() == BlockState::evicting; }
  // The copy is whole, and CPUs reach it.
  bool has_bytes() const { return is_whole_as(0); }
  // The copy is whole, and only GPUs reach it.
  bool is_whole_on_gpu() const { return is_whole_as(kOnGpu); }
  BlockState now() const { return static_cast<BlockState>(word.load() & (kOnGpu - 1)); }
  bool has(std::uint32_t flag) const { return (word.load() & flag) != 0; }
  // A hit may pin it without the lock.
  static bool is_open(std::uint32_t word) {
    return (word & ~kOnGpu) == static_cast<std::uint32_t>(BlockState::ready);
  }
  // The word of a victim that no plan watches.
  static bool may_reopen(std::uint32_t word) {
    return (word & ~kOnGpu) == (static_cast<std::uint32_t>(BlockState::ready) | kCounted | kVictim);
  }
  // P3 of a victim (readers.h). False: it is no victim, or no longer one. Thread-safe.
  bool reopen() {
    std::uint32_t seen = word.load();
    return may_reopen(seen) && word.compare_exchange_strong(seen, seen & ~(kCounted | kVictim));
  }
  // D6 begins: no hit can reopen the entry. False: one has, or its pins are not counted.
  bool claim() {
    std::uint32_t seen = word.load();
    while ((seen & (kVictim | kUncounted)) != 0 &&
           !word.compare_exchange_weak(seen, seen & ~(kVictim | kUncounted))) {
    }
    return (seen & (kCounted | kUncounted)) == kCounted;
  }
  [[gnu::always_inline]] Range range() const { return {id, offset, length}; }
  // P3 and P4 of readers.h. Requires: the slot is set. Thread-safe.
  [[gnu::always_inline]] bool is_open_for(const Range& wanted) const {
    return is_open(word.load()) && range().contains(wanted);
  }
  // Like is_open_for(), for a block of exactly that range.
  [[gnu::always_inline]] bool is_open_as(const Range& wanted) const {
    return is_open(word.load()) && range() == wanted;
  }
  Extent extent() const { return {object, offset, Bytes{length}}; }
  // Its bytes are or become newer than its source's. It stays in the index, and no other block of
  // the index overlaps it.
  bool kept() const { return written != 0 || dirty != 0; }
  // Whether it can be dropped, if slots do not pin it. Guarded by the cache's lock.
  bool droppable(bool planned_too) const;
  // The bytes of a block that is pinned and whole; null: only GPUs reach them.
  const std::byte* bytes() const { return has(kOnGpu) ? nullptr : data.load(); }
  // The same bytes, from an offset of the source on.
  const std::byte* bytes_from(std::uint64_t at) const {
    return has(kOnGpu) ? nullptr : data + (at - offset);
  }

 private:
  bool is_whole_as(std::uint32_t where) const {
    return is(where, BlockState::ready) || is(where, BlockState::evicting);
  }
  bool is(std::uint32_t where, BlockState state) const {
    return (word.load() & (kAwaited - 1)) == (where | static_cast<std::uint32_t>(state));
  }
};

// A block costs at most 138 bytes besides its own (docs/design/cache.md): the index adds 6 to 26
// (index.h), S3-FIFO's keys of evicted blocks 4 to 8.
static_assert(sizeof(CacheEntry) <= 104);

// Entries keep their address while the pool lives. A thread that reads one without the lock may
// find another block in it, but always an entry. Single-thread.
class EntryPool {
 public:
  // A new entry: filling, with a Fill, in no index. Throws bad_alloc, and then has taken nothing.
  CacheEntry& take();
  // Gives a ready entry a Fill again. Throws bad_alloc.
  void take_fill(CacheEntry& entry);
  // Requires: it has no frame and no pins.
  void give(CacheEntry& entry);
  // Returns only the Fill, when the copy is ready and the block is clean.
  void give_fill(CacheEntry& entry);
  // An entry whose `pins` are not 0; null: none.
  const CacheEntry* any_pinned() const;

 private:
  void make_fills();
  static constexpr std::size_t kChunk = 64;
  static constexpr std::size_t kFills = 16;
  std::vector<std::unique_ptr<CacheEntry[]>> chunks_;
  std::vector<std::unique_ptr<Fill[]>> fill_chunks_;
  EvictionLinks* free_ = nullptr;  // linked by `newer`
  Fill* free_fills_ = nullptr;     // linked by `next`
};

}  // namespace headrace
