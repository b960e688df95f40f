// SPDX-License-Identifier: Apache-2.0
// What the cache knows about one block, and about its copy while that is in flight.
//
// Life of an entry: made `filling` and put into the index under the lock, before its copy is
// submitted, so that nobody copies twice; then ready or failed, set once by the end of the
// transfer. It leaves the index when it is evicted, invalidated or failed (then it is `detached`:
// no new access finds it, and what was ready is `evicting`), and goes back to the pool when it is
// detached, unpinned and not being filled.
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

// What is needed only from the start of a copy to its end (and for a failed one, as long as
// somebody may ask why).
struct Fill {
  Extent to;
  std::optional<Transfer> transfer;  // once submitted, if it is not done then
  ObjectId object{};                 // that it reads
  Fill* next = nullptr;              // all that are in flight, or unused
  Fill* previous = nullptr;
  Priority priority = Priority::demand;
  bool cancelled = false;  // nobody wants it any more
  std::optional<Error> error;
  std::vector<std::function<void()>> thens;  // to be called at its end
};

// What a hit reads besides the frame, in one place: with the frame's data and length 48 bytes.
struct HitPart {
  // Written before the word says ready; then they stay until it no longer does.
  Relaxed<ObjectId> id{};
  Relaxed<std::uint64_t> offset = 0;
  ChainLink<struct CacheEntry> next_in_cell;  // the index's
  // A BlockState and flags. Changed under the lock; kAwaited also without it.
  std::atomic<std::uint32_t> word{0};
  std::uint32_t pins = 0;  // Blocks, but for those in slots (readers.h)

  // Its frame is memory that only GPUs reach. In the byte of the state, so that one comparison asks
  // for both.
  static constexpr std::uint32_t kOnGpu = 1U << 7;
  // Somebody sleeps on the word: only then the end of a copy makes a system call.
  static constexpr std::uint32_t kAwaited = 1U << 8;
  // All its pins are in `pins`, and every access to it takes the lock.
  static constexpr std::uint32_t kCounted = 1U << 9;
  // A plan may want to know of accesses to it, which take the lock therefore.
  static constexpr std::uint32_t kNoticed = 1U << 10;
  // With kCounted: chosen as a victim, but whoever hits it may make it open again, without the
  // lock.
  static constexpr std::uint32_t kVictim = 1U << 11;
  // With kCounted: D1 is done, and the thread that did it has yet to do D2 to D5.
  static constexpr std::uint32_t kUncounted = 1U << 12;
};

struct CacheEntry final : Frame, HitPart, EvictionLinks {
  // These lie in the tail padding of EvictionLinks. Guarded by the cache's lock.
  std::uint8_t by_prefetch : 1 = 0;
  std::uint8_t used : 1 = 0;      // accessed at least once
  std::uint8_t detached : 1 = 0;  // not in the index
  std::uint8_t chosen : 1 = 0;    // among the victims of its node
  // Index of the node in the cache. Stays while somebody holds the block, who may read it without
  // the lock.
  std::uint8_t node = 0;
  std::uint32_t planned = 0;  // items of plans that protect it

  static constexpr std::size_t kMostNodes = 256;

  const Object* object = nullptr;  // never read through: it may be gone. For events
  Fill* fill = nullptr;            // of the pool; while filling, and for a failed block

  CacheEntry() = default;
  CacheEntry(const CacheEntry&) = delete;
  CacheEntry& operator=(const CacheEntry&) = delete;

  // The copy is whole, in the index or not.
  bool is_whole() const { return now() == BlockState::ready || now() == BlockState::evicting; }
  // And CPUs reach it.
  bool has_bytes() const { return is_whole_as(0); }
  // And only GPUs do.
  bool is_whole_on_gpu() const { return is_whole_as(kOnGpu); }
  BlockState now() const { return static_cast<BlockState>(word.load() & (kOnGpu - 1)); }
  bool has(std::uint32_t flag) const { return (word.load() & flag) != 0; }
  // A hit may pin it without the lock.
  static bool is_open(std::uint32_t word) {
    return (word & ~kOnGpu) == static_cast<std::uint32_t>(BlockState::ready);
  }
  // The word of a victim of which no plan wants to know.
  static bool may_reopen(std::uint32_t word) {
    return (word & ~kOnGpu) == (static_cast<std::uint32_t>(BlockState::ready) | kCounted | kVictim);
  }
  // P3 of a victim (readers.h). False: it is none, or no longer one. Thread-safe.
  bool reopen() {
    std::uint32_t seen = word.load();
    return may_reopen(seen) && word.compare_exchange_strong(seen, seen & ~(kCounted | kVictim));
  }
  // D6 begins: nobody reopens it from here on. False: somebody has, or its pins are not counted.
  bool claim() {
    std::uint32_t seen = word.load();
    while ((seen & (kVictim | kUncounted)) != 0 &&
           !word.compare_exchange_weak(seen, seen & ~(kVictim | kUncounted))) {
    }
    return (seen & (kCounted | kUncounted)) == kCounted;
  }
  [[gnu::always_inline]] Range range() const { return {id, offset, length}; }
  // P3 and P4 of readers.h: not asked before the slot is set. Thread-safe.
  [[gnu::always_inline]] bool is_open_for(const Range& wanted) const {
    return is_open(word.load()) && range().contains(wanted);
  }
  // The same for a block of exactly that range.
  [[gnu::always_inline]] bool is_open_as(const Range& wanted) const {
    return is_open(word.load()) && range() == wanted;
  }
  Extent extent() const { return {object, offset, Bytes{length}}; }
  // The bytes of a block that is pinned and whole; null: only GPUs reach them.
  const std::byte* bytes() const { return has(kOnGpu) ? nullptr : data.load(); }
  // The same from an offset of the source on.
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

// Entries that stay where they are while the pool lives: whoever looks at one without the lock may
// find another block in it, but an entry. Single-thread.
class EntryPool {
 public:
  // As it is filled first: filling, with a Fill, in no index. bad_alloc: nothing was taken.
  CacheEntry& take();
  // Requires: it has no frame, and nobody pins it.
  void give(CacheEntry& entry);
  // The copy is there.
  void give_fill(CacheEntry& entry);
  // An entry whose `pins` are not 0; null: none.
  const CacheEntry* any_pinned() const;

 private:
  static constexpr std::size_t kChunk = 64;
  static constexpr std::size_t kFills = 16;
  std::vector<std::unique_ptr<CacheEntry[]>> chunks_;
  std::vector<std::unique_ptr<Fill[]>> fill_chunks_;
  EvictionLinks* free_ = nullptr;  // linked by `newer`
  Fill* free_fills_ = nullptr;     // linked by `next`
};

}  // namespace headrace
