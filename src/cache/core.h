// SPDX-License-Identifier: Apache-2.0
// One shard of a Cache: the work behind the handles. The lock and what it guards are in blocks.h.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cache/blocks.h"
#include "cache/fills.h"
#include "cache/writes.h"
#include "headrace/cache.h"

namespace headrace {

inline constexpr std::string_view kTheCache = "the cache";

// Calls `then` under the lock for all blocks that overlap `range`, with their pins counted. Works
// in slices of PrefetchPlan::kSlice, so that the lock is never held for long.
using ForBlock = std::function<void(Blocks&, CacheEntry&)>;
// False: blocks that are dirty or held for writing were left out, as in the next function.
bool for_blocks(ShardState& state, const Range& range, const ForBlock& then);
// Like above, for all blocks of a node. By address, so that dropped neighbours leave one gap.
void for_blocks(ShardState& state, std::size_t node, const ForBlock& then);
void drop_all(ShardState& state, std::size_t node);

// Allocates slabs without the lock. No access is refused while a slab is being allocated.
class Slabs {
 public:
  explicit Slabs(ShardState& state) : state_(state) {}

  // The kernel may lack the memory of slabs that are being released. Then this waits until they are
  // gone, so that the caller tries again.
  void grow(const Growth& growth);
  // Waits until another thread's slab is there or was refused. `seen`: Signals::space_changes
  // before. False: neither happened in time. That thread never waits for this one, even if this one
  // is inside a callback. A callback on a thread that owes a slab itself does not wait.
  bool await(std::uint32_t seen);
  // Allocates slab by slab, until the node has its budget.
  Status reserve(std::uint16_t node);

 private:
  Result<std::shared_ptr<const Object>> allocate_for(const Growth& growth) const;

  ShardState& state_;
};

// Makes and ends plans, and starts their copies. Starts the moves of a chain, too.
class Pump {
 public:
  // An access, a release or the end of a copy starts at most kSome blocks of plans. A thread that
  // makes or ends a plan, empties the cache or changes a budget starts all.
  static constexpr std::size_t kSome = Started::kMost;
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  Pump(ShardState& state, CacheCore& core, Fills& fills, Slabs& slabs, Moves& moves)
      : state_(state), core_(core), fills_(fills), slabs_(slabs), moves_(moves) {}

  // Starts at most `most` blocks that plans may start now, so that no access is delayed for long.
  // The ends of these copies start more; so do later uses, wait() and progress().
  //
  // One thread at a time: a copy may complete inside submit(), and then complete() only asks for
  // another pump. may_grow: the thread may allocate slabs. Threads that complete copies must not.
  // If memory runs out, the next caller tries again.
  void pump(bool may_grow, std::size_t most = kSome) noexcept;
  void pump_if_due(bool may_grow, std::size_t most = kSome) {
    if (state_.signals.take_pump_due()) return pump(may_grow, most);
    moves_.start_due();
  }

  std::shared_ptr<PrefetchPlan> prefetch(std::span<const Extent> extents,
                                         const PrefetchOptions& options);
  // `progress`: the counts at the beginning. Requires: as for Steps, unless there are none.
  std::shared_ptr<PrefetchPlan> prefetch(const Strided& all, Steps::FromShard from_shard,
                                         const Prefetch::Progress& progress,
                                         const PrefetchOptions& options);
  void cancel(const std::shared_ptr<PrefetchPlan>& plan);
  // Also starts copies that are due.
  Prefetch::Progress progress(const PrefetchPlan& plan);
  void end_all();

 private:
  void begin(const std::shared_ptr<PrefetchPlan>& plan, const PrefetchOptions& options);
  void enlist(const std::shared_ptr<PrefetchPlan>& plan);
  void notice_steps(const Steps& steps);
  void start_plans(bool may_grow, std::size_t most) noexcept;
  void start_most(bool may_grow, std::size_t most);
  void end(const std::shared_ptr<PrefetchPlan>& plan);

  ShardState& state_;
  CacheCore& core_;
  Fills& fills_;
  Slabs& slabs_;
  Moves& moves_;
};

// An entry for a new block. The destructor returns it to the pool if it was not used.
class Spare {
 public:
  explicit Spare(ShardState& state) : state_(state) {}
  ~Spare() {
    if (entry == nullptr) return;
    const MutexLock lock(state_.mutex);
    state_.blocks.give_unused(*entry);
  }
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;

  CacheEntry* entry = nullptr;

 private:
  ShardState& state_;
};

// The error of an access that found no space in the budget of a node.
Error without_space(const Shard& shard, NodeId node, Bytes length, Bytes budget);
Error foreign_tenant();

class CacheCore {
 public:
  // Shard number `shard` of `shards` of `cache`. options.budgets are its own.
  CacheCore(Mover& mover, CacheOptions options, Accounts& accounts, const void* cache,
            std::size_t shard, std::size_t shards);
  // Requires: all shards are at rest, and no Block is left.
  ~CacheCore();
  // Cancels plans, drops all blocks and waits for copies. Requires: only callbacks of copies use
  // the cache. A callback in another shard may start a copy here afterwards.
  void come_to_rest();
  // Copies so far.
  std::uint64_t started() const { return state_.signals.started.load(); }

  static Status check(const Machine& machine, const CacheOptions& options);
  // Allocates all that the budgets allow (CacheOptions::reserve).
  Status reserve();

  // Defined in access.cpp, where it is inlined into Cache::access().
  Block access(const Extent& extent, const AccessOptions& options);
  // Requires: the blocks are empty.
  void access(std::span<const Extent> extents, std::span<Block> blocks,
              const AccessOptions& options, Started* together);
  // For a range that may lie in a block of this shard although its first byte belongs to another
  // shard. may_cover(): whether there may be such a block. find_there(): pins it, if it is still
  // there. Neither starts a copy.
  bool may_cover(const Range& range) const { return state_.hits.may_cover(range); }
  bool find_there(const Extent& extent, const AccessOptions& options, Block& block);
  // The range was accessed in another shard: plans of this one may have been used.
  void use(const Range& range, const AccessOptions& options);
  // Whether the access names a plan of another cache.
  bool is_foreign(const AccessOptions& options) const;
  // Makes a Block without a copy, which tells why. `exhausted` counts as a miss and a refusal.
  void refuse(const Extent& extent, Block& block, Error why);

  bool invalidate(Extent extent);
  // The patience of one call is for all shards.
  Status discard(const Extent& extent, Patience& patience);
  Status write_back(const WriteBackOptions& options, Patience& patience);
  // Calls `then` under the lock.
  void use_files(const std::function<void(WrittenFiles&)>& then);
  Status forget(const Object& object, Patience& patience);
  std::vector<ObjectId> reading() const;
  void flush();
  void clear();
  Status resize(NodeId node, Bytes budget);
  // All counts except the percentiles, whose samples are added to the histograms.
  CacheStats stats(Histogram& wait_time, Histogram& copy_latency) const;
  // The memory of the host that it would allocate for a budget beside what it has.
  Bytes more_for(NodeId node, Bytes budget) const;

  // The process of its threads and locks. In a child of fork() nothing changes any more: ready
  // blocks can be read, with pins or without.
  const Origin& origin() const { return state_.origin; }
  Pump& pump() { return pump_; }

  // For the handles.
  Fills& fills() { return fills_; }
  void pin_again(CacheEntry& entry);
  TenantPins& pins() { return state_.parts.accounts.pins; }
  // `slot` null: the pin was counted. `own`: this thread's slot, empty already.
  void unpin(CacheEntry& entry, PinSlot* slot, bool own);
  void end_write(CacheEntry& entry, bool wrote);
  bool writable() const { return state_.options.writable; }
  const Readers& readers() const { return state_.hits.readers; }
  NodeId node_of(const CacheEntry& entry) const { return state_.options.budgets[entry.node].first; }
  Error why(const Block& block) const;

 private:
  friend class CacheAccess;
  friend class CacheExplainer;
  Block access_somehow(const Extent& asked, const AccessOptions& options);
  bool hit(const Extent& extent, Block& block, bool equal_first);
  bool hit_all(std::span<const Extent> extents, std::span<Block> blocks);
  void drop_everything();
  void free_empty_slabs();

  ShardState state_;
  Fills fills_;
  Writes writes_;
  Slabs slabs_;
  Moves moves_;
  Pump pump_;
  const void* const cache_;
};

}  // namespace headrace
