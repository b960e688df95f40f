// SPDX-License-Identifier: Apache-2.0
// The memory of a shard: budgets, slabs and frames of each node, and the choice of the blocks to
// evict.
//
// A table in docs/design/cache/space.md has the steps of a miss in their order. No block is evicted
// unless that makes the space: a row is dropped whole or not at all. No request is refused while a
// slab is being allocated.
//
// Guarded by the shard's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/accounts/tenants.h"
#include "cache/structures/entry.h"
#include "cache/structures/frames.h"
#include "cache/structures/hits.h"
#include "headrace/cache.h"

namespace headrace {

class Blocks;
struct Shard;
class SpaceSearch;

inline CacheEntry& entry_of(Frame& frame) { return static_cast<CacheEntry&>(frame); }

inline auto droppable(bool planned_too) {
  return [planned_too](Frame& frame) { return entry_of(frame).droppable(planned_too); };
}

// The needs of a new block. For a plan, no block is dropped that another planned use waits for.
struct SpaceRequest {
  std::uint16_t node = 0;
  std::uint32_t tenant = 0;
  Extent extent;
  bool by_prefetch = false;
  Priority priority = Priority::prefetch;
  Keep keep = Keep::normal;
  bool write = false;        // its first Block holds it for writing
  bool last_resort = false;  // may evict from a memory whose blocks are usually demoted
};

// A slab to allocate outside the lock; its bytes are reserved.
struct Growth {
  std::uint16_t node = 0;
  std::uint64_t bytes = 0;
};

class Space {
 public:
  // growth: the caller must allocate a slab; growing: another thread allocates one; none: refused.
  enum class Outcome : std::uint8_t { found, growth, growing, none };

  // A search that found no space. Valid until something was let go.
  struct FailedSearch {
    std::uint64_t length = 0, offset_in_page = 0, let_go = 0;
    std::size_t offered = 0;  // blocks offered by the order that could not be dropped
    bool bounded = false;     // a bound ended it: another search may find space
    std::uint32_t tenant = 0;
  };
  // The blocks of one tenant; of all if the cache has no tenants.
  struct Queue {
    std::unique_ptr<EvictionOrder> order;
    std::size_t blocks = 0;  // copies
    // Chosen by the order, to be dropped next, from the back. One heavy fence serves many.
    std::vector<CacheEntry*> victims;  // has memory for kVictims
    bool scarce = false;               // the last search found less than half of the wanted victims
    unsigned pause = 0;  // misses of a cache with tenants until the next search, after a vain one
  };
  struct Node {
    NodeId id{};
    std::uint64_t budget = 0;
    Frames frames;
    std::uint64_t growing = 0;   // bytes of slabs that are being allocated
    std::uint64_t used = 0;      // bytes of copies
    std::uint64_t planned = 0;   // bytes of copies that plans protect
    std::uint64_t dirty = 0;     // bytes of dirty blocks
    std::uint64_t leaving = 0;   // bytes that are due or on their way: write-backs, demotions
    std::uint64_t reserved = 0;  // bytes kept for the plan whose turn it is
    std::vector<Queue> queues;   // one for each tenant
    std::unique_ptr<TenantShares> tenants;  // null: the cache has no tenants
    bool counting = false;                  // a thread will count the pins of some victims
    std::uint64_t passed = 0;  // bytes that took the place of similar sizes, ahead of older victims
    // Why the last slab was refused, and when to ask again.
    std::optional<Error> grow_error;
    Nanoseconds grow_again{0};
    bool on_gpu = false;   // only GPUs reach it; immutable
    bool top = true;       // the first memory of a chain, or there is none; immutable
    bool last = true;      // the last one, or there is none; immutable
    bool lost = false;     // this GPU is lost: see `grow_error`
    FailedSearch search;   // the one under way
    FailedSearch refused;  // the last of a demand; an equal one finds nothing either

    // A block has got a frame, or loses it.
    void count(const CacheEntry& entry) {
      used += entry.length;
      ++queue_of(entry).blocks;
      if (tenants != nullptr) tenants->add(entry);
    }
    void discount(const CacheEntry& entry) {
      used -= entry.length;
      --queue_of(entry).blocks;
      if (tenants != nullptr) tenants->subtract(entry);
    }
    // A demotion of the block is to begin, or has ended.
    void leave(const CacheEntry& entry) {
      leaving += entry.length;
      if (tenants != nullptr) tenants->leave(entry);
    }
    void left(const CacheEntry& entry) {
      leaving -= entry.length;
      if (tenants != nullptr) tenants->left(entry);
    }
    // Whether the tenant that asks may not evict this one, or not all of these.
    bool keeps(const CacheEntry& entry) const {
      return tenants != nullptr && tenants->keeps(entry);
    }
    bool keeps(std::span<Frame* const> row) const {
      return tenants != nullptr && tenants->keeps(row);
    }
    // Bytes that the tenant can have.
    std::uint64_t most(std::uint32_t tenant) const {
      return tenants == nullptr ? budget : tenants->most(tenant, budget);
    }
    // Whether an empty memory would have space for a block of the tenant.
    bool may_hold(std::uint32_t tenant, std::uint64_t length) const {
      return length <= most(tenant);
    }
    Queue& queue_of(const CacheEntry& entry) { return queues[entry.tenant]; }
    // The tenants whose blocks may be evicted for the one that asks, in this order.
    TenantTurns turns() const {
      if (tenants != nullptr) return tenants->turns();
      TenantTurns all;
      all.add(0);
      return all;
    }
  };

  explicit Space(const Shard& shard);

  Node& node(std::size_t number) { return nodes_[number]; }
  std::span<Node> nodes() { return nodes_; }
  std::span<const Node> nodes() const { return nodes_; }
  std::optional<std::uint16_t> number_of(NodeId id) const;
  std::size_t number_of(const Node& node) const {
    return static_cast<std::size_t>(&node - nodes_.data());
  }

  // The bytes and evictions of the tenants on all nodes. Empty if there are none.
  std::vector<CacheStats::Tenant> tenants(const Hits::ByTenant& pinned) const;
  // Gives the entry a frame, by eviction if need be.
  Outcome make(CacheEntry& entry, const SpaceRequest& request, std::optional<Growth>& wanted);
  // After make() found no space in a memory of a chain: sets the one to ask next. Those below
  // first, then the first one that is large enough, which evicts. False: all were asked; the
  // request is ready for another round.
  bool go_on_in_chain(SpaceRequest& request) const;
  void give_frame(CacheEntry& entry);

  // From now on releases are reported, until released(). A release during the search that found no
  // space was not reported, so plans and waiting accesses search once more. True: the reports begin
  // now.
  bool stall();
  bool stalled() const { return stalled_; }
  // Something was released: a search may find space.
  void released();
  // A block that a search found pinned or protected may have become droppable.
  void let_go() { ++let_go_; }
  // Whether an access for an extent like this found no space, and nothing has changed since that
  // could make space.
  bool was_refused(const Node& node, const Extent& extent) const;

  // The slab that would make space, if the budget and the kernel allow it. Reserves its bytes.
  std::optional<Growth> growth(const SpaceRequest& request);
  void cancel(const Growth& growth);
  // Whether this thread, in a call on its stack, has reserved a slab and not yet allocated it.
  static bool owes_slab();
  // The reserved slab, or why there is none. `unmapped`: unmapped() before it was asked for. True:
  // the kernel may have refused it for the sake of slabs that are being released.
  bool grown(const Growth& growth, Result<std::shared_ptr<const Object>> slab,
             std::uint64_t unmapped);
  void free_empty_slabs();
  std::uint64_t unmapped() const { return unmapped_; }
  void count_unmapped(std::size_t slabs);

  // A released block is tried before the order is asked, if space was lacking or plans have used it
  // up: among very many pins the order would take a while to offer it. If it was released without
  // the lock, the entry may be another block by now.
  void offer(CacheEntry& entry);
  // Makes a block no victim any more.
  void spare(CacheEntry& entry);
  // Chooses victims ahead of need: only D1, so that the fence is waited for without the lock. True:
  // count_victims() must follow, after a fence.
  bool choose_victims_ahead(Node& node);
  void count_victims(Node& node);

  // After the budget became smaller, or a slab came too late for it. Plans protect no blocks here;
  // their items become pending. Handles one slab or one slice of blocks. False: nothing is left.
  bool fit_budget(Node& node);
  // Like fit_budget(), after one block became droppable on a node over its budget. Null: it is
  // gone.
  void fit_budget_by(std::size_t node, CacheEntry* freed);

 private:
  friend class SpaceSearch;
  // Most victims examined per miss. Among many pins a longer search rarely pays: RocksDB measured
  // 16 times less throughput without such a cap than with one of 30 (its PR 12141). Twice that
  // here, since a refused block costs more than a search.
  static constexpr unsigned kEffort = 64;
  // Most frames examined per search. It bounds the rows of many small blocks for one large block.
  static constexpr unsigned kFrameEffort = 16384;
  // Slabs for one large block are multiples of this: the smallest page.
  static constexpr std::uint64_t kPage = 4096;
  // Most victims chosen together, for one heavy fence.
  static constexpr std::size_t kVictims = 256;
  // After a search without a victim, that many misses of a cache with tenants do not repeat it.
  static constexpr unsigned kPause = 16;

  // Bytes of an empty slab that certainly hold the block.
  static std::uint64_t slab_for(const Extent& extent);
  static std::vector<Frame*> frames_of(const Frames& frames, std::span<std::byte* const> slabs);
  bool growing_is_paused(const Node& node) const;
  Status add_slab(Node& node, std::shared_ptr<const Object> slab, std::uint64_t bytes);
  void free_slab(Node& node, const std::byte* begin);
  std::byte* surplus_slab(const Node& node) const;
  bool free_surplus_slab(Node& node);
  std::size_t most_victims(const Queue& queue) const;
  bool pick_victims(Node& node, std::uint32_t tenant);
  bool choose_victims(Node& node, std::uint32_t tenant);
  void visit_planned(const Node& node, const std::function<bool(CacheEntry&)>& take);
  bool drop_until_fit(Node& node, std::span<CacheEntry* const> blocks);

  const Shard& shard_;
  std::vector<Node> nodes_;
  Frames::Row row_;  // reused by each search
  // A plan or an access found no space, so the next release starts another search.
  bool stalled_ = false;
  std::uint64_t let_go_ = 1;
  // Slabs being released (meanwhile the kernel may refuse others), and slabs released so far.
  std::size_t unmapping_ = 0;
  std::uint64_t unmapped_ = 0;
};

}  // namespace headrace
