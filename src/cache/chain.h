// SPDX-License-Identifier: Apache-2.0
// Moves of blocks between the memories of a chain (CacheOptions::chain,
// docs/design/cache/chain.md).
//
// Invariants:
// M1. A move copies a block to a second entry that is in no index. Accesses find the first entry,
//     whose bytes stay as they are. So an access never waits for a move.
// M2. A move pins its first entry: its frame and entry stay until the move has ended, also if the
//     block is dropped meanwhile.
// M3. The second entry takes the place of the first one in the index only if the copy succeeded and
//     the first one is still there. invalidate(), clear() and flush() remove it, so the bytes of a
//     move never outlive them.
// M4. A block that others hold or plan to use is not demoted. A block whose demotion failed is
//     evicted, so that space is made in any case.
//     A tenant's demotions count as gone from its bytes, so that no other tenant takes more than it
//     has beyond its `least`.
// M5. A block that is dirty, or held or wanted for writing, is not moved. A move that has not begun
//     is given up for a writer; a later one makes it wait, by the pin of M2.
// M6. In a writable cache a block that Blocks hold is not moved: a writer would not find their pins
//     at the new place. Its promotion is put off until only the move holds the block.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "cache/space.h"
#include "cache/structures/entry.h"
#include "core/intrusive_list.h"
#include "core/mutex.h"

namespace headrace {

class Fills;
class Slabs;
struct Shard;
struct ShardState;

// The moves of a shard that are to be started or in flight. Guarded by the shard's lock.
class Chain {
 public:
  explicit Chain(const Shard& shard) : shard_(shard) {}

  // Moves the block to the first memory. Without memory for the move it stays.
  void promote(CacheEntry& entry) noexcept {
    begin(entry, true);
    if (entry.moving != 0) hurry();
  }
  // The same for a hit, which seldom pays for starting it: the promotion waits for the next
  // demotion, for kTogether hits, or for hits of kWaitingShare of the first memory.
  void promote_soon(CacheEntry& entry) noexcept;
  // The next caller of Moves::start_due() starts the moves that wait.
  void hurry() noexcept;
  // A Block released this block, which now only its move holds.
  void hurry_put_off() noexcept {
    if (put_off_.front() != nullptr) hurry();
  }
  // A writer wants the block, which only its move holds: a move that has not begun is given up.
  void give_way(CacheEntry& from);
  // Demotes blocks of the node until blocks of this length probably find space. `urgent`: one found
  // none. Does nothing for the last memory, whose blocks are evicted.
  // With tenants also those of the block's tenant, so that it stays below its `most`.
  void make_way(std::uint16_t node, std::uint32_t tenant, const Extent& extent,
                bool urgent) noexcept;
  // Blocks::clean_some() of this memory, and of the further ones of a chain.
  bool clean_some(std::uint16_t node);
  // Takes moves to submit, which are in flight from now on.
  struct Taken {
    std::size_t count = 0;
    std::optional<Growth> wanted;  // a slab that the next one needs
    bool stuck = false;            // another thread allocates it
  };
  Taken take_due(std::span<CacheEntry*> out);
  // The move to `entry` has ended. `why`: the error; null: success.
  void end(CacheEntry& entry, const Error* why);
  // Subtracts the bytes that are pinned by moves only.
  void subtract_pinned(Hits::ByTenant& bytes) const;

 private:
  // Bytes of a memory that is not the last one are free, so that misses and promotions find space:
  // this share, and two blocks. Demotions begin when half of the share is free, or kLeastFree
  // blocks, since one fence and one submission serve many.
  static constexpr std::uint64_t kFreeShare = 16;
  static constexpr std::uint64_t kLeastFree = 8;
  static constexpr std::uint64_t kWaitingShare = 64;
  static constexpr std::uint64_t kTogether = 16;
  static constexpr std::size_t kMostRows = 16;  // demoted by one call

  void begin(CacheEntry& from, bool up) noexcept;
  bool demote_row(std::uint16_t node, const Extent& extent);
  template <class Has>
  void keep_free(std::uint16_t node, const Extent& extent, std::uint64_t budget, const Has& has);
  bool wanted(const CacheEntry& to) const;
  Space::Outcome make_space(CacheEntry& to, std::optional<Growth>& growth);
  void start(CacheEntry& to);
  void give_up(CacheEntry& to);
  void release(CacheEntry& from, bool evict);

  const Shard& shard_;
  using FillList = IntrusiveList<Fill, &Fill::next, &Fill::previous>;
  FillList due_;
  FillList put_off_;  // promotions of blocks that were held, until the next hurry()
  FillList moving_;
  Frames::Row row_;          // reused by each search
  std::uint64_t asked_ = 0;  // bytes of hits that wait for a promotion
};

// Starts the moves of a shard. Thread-safe. Takes the lock for its part of the work.
class Moves {
 public:
  Moves(ShardState& state, Fills& fills, Slabs& slabs)
      : state_(state), fills_(fills), slabs_(slabs) {}

  static constexpr std::size_t kSome = 4;
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  // Starts the moves that are due, `rounds` times kMost, so that no access does the moves of all
  // other threads; a thread that starts some already goes on with these. The next call starts the
  // rest. May be called in callbacks of the Mover, which allocate no slab.
  void start_due(std::size_t rounds = kSome) noexcept;

 private:
  static constexpr std::size_t kMost = 16;  // submitted together

  bool start_some();
  void submit(std::span<CacheEntry* const> entries) noexcept;

  ShardState& state_;
  Fills& fills_;
  Slabs& slabs_;
  std::atomic<bool> starting_{false};
};

}  // namespace headrace
