// SPDX-License-Identifier: Apache-2.0
// The Cache behind its handles. One lock for everything but hits, the waiting and the bytes: the
// state of a block is an atomic word, so wait() and now() of a Block take no lock, and a ready
// block is pinned and let go without it (readers.h).
//
// What is never done under the lock: submitting a copy, allocating or freeing a slab, asking a
// policy, cancelling a transfer, waking a thread. Each of these may take long or call back.
//
// Split by concern: core.cpp (making, ending, handles, counts), hits.cpp (without the lock),
// access.cpp (lookup, miss, the end of a copy), space.cpp (frames, eviction, dropping), slabs.cpp,
// prefetch.cpp (plans).
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/entry.h"
#include "cache/plan.h"
#include "cache/readers.h"
#include "cache/structures/destinations.h"
#include "cache/structures/frames.h"
#include "cache/structures/grow.h"
#include "cache/structures/index.h"
#include "core/fork.h"
#include "core/intrusive_list.h"
#include "core/mutex.h"
#include "core/waiting/patience.h"
#include "headrace/buffer.h"
#include "headrace/cache.h"
#include "headrace/histogram.h"

namespace headrace {

inline constexpr std::string_view kTheCache = "the cache";
inline constexpr std::string_view kInCallback =
    "{} in a callback of the Mover would hold up the very copy it waits for; call it from a thread "
    "of your own";

// How long a waiting thread sleeps before it looks whether a backend wants to be polled: doubling
// from the first to the second. With a poller in the Mover the end of the copy wakes it at once; in
// a Mover without one (MoverOptions::poller) this thread does the polling.
inline constexpr Nanoseconds kFirstSleep = std::chrono::microseconds{50};
inline constexpr Nanoseconds kLongestSleep = std::chrono::milliseconds{10};

class CacheCore;

// Requires: it has an object.
[[gnu::always_inline]] inline Range range_of(const Extent& extent) {
  return {extent.object->id(), extent.offset, extent.length.value};
}

// For EvictionBlock::key.
inline std::uint64_t key_of(const Range& range) {
  std::uint64_t key = hash_secret();
  for (const std::uint64_t part : {raw(range.object), range.offset, range.length}) {
    key = (key ^ part) * 0x9e3779b97f4a7c15;  // as the index (Fibonacci hashing)
    key ^= key >> 32;
  }
  return key;
}

// A slab of its own for a large block is a whole number of these: the smallest page.
inline constexpr std::uint64_t kPage = 4096;

// The bytes that certainly suffice for a block in an empty slab.
inline std::uint64_t slab_for(const Extent& extent) {
  return (Frames::slab_bytes(extent.length.value, extent.offset) + kPage - 1) / kPage * kPage;
}

// What is to be done when the lock is let go. Declare it before the MutexLock.
class DeferredActions {
 public:
  explicit DeferredActions(CacheCore& core) : core_(core) {}
  DeferredActions(const DeferredActions&) = delete;
  DeferredActions& operator=(const DeferredActions&) = delete;
  ~DeferredActions() {
    if (awaited != nullptr || wake || lists_) act();
  }

  // Whether it needs the cache, or calls somebody who may.
  bool any() const {
    return awaited != nullptr || wake ||
           (lists_ && !(lists_->free.empty() && lists_->thens.empty()));
  }
  void promote(const Transfer& transfer, Priority priority) {
    lists().promote.emplace_back(transfer, priority);
  }
  // Without memory only the first; the others end by themselves.
  void cancel(const Transfer& transfer) {
    Lists& all = lists();
    if (!all.first_cancelled) {
      all.first_cancelled = transfer;
      return;
    }
    try {
      all.more_cancelled.push_back(transfer);
    } catch (const std::bad_alloc&) {
    }
  }
  void forget(Transfer transfer) { lists().ended = std::move(transfer); }
  void call(std::vector<std::function<void()>> thens) { lists().thens = std::move(thens); }
  // Room for one more slab to free(), which then cannot fail.
  void may_free() { grow_for_one(lists().free); }
  void free(std::unique_ptr<Buffer> slab) { lists().free.push_back(std::move(slab)); }

  // Those who sleep on it are woken first.
  const std::atomic<std::uint32_t>* awaited = nullptr;
  bool wake = false;  // those who wait for space

 private:
  // Most have none of these.
  struct Lists {
    std::vector<std::pair<Transfer, Priority>> promote;
    std::optional<Transfer> first_cancelled;
    std::vector<Transfer> more_cancelled;
    std::vector<std::unique_ptr<Buffer>> free;
    std::vector<std::function<void()>> thens;
    Transfer ended;
  };
  Lists& lists() { return lists_ ? *lists_ : lists_.emplace(); }
  void act();

  CacheCore& core_;
  std::optional<Lists> lists_;
};

// Where a copy is to go, and whether it may go elsewhere where that is full.
struct Destination {
  std::uint16_t node = 0;
  bool spills = false;
};

class CacheCore {
  friend class Block;

 public:
  // The shard of that number, of `shards`; options.budgets are its own.
  CacheCore(Mover& mover, CacheOptions options, std::size_t shard = 0, std::size_t shards = 1);
  ~CacheCore();

  static Status check(const Machine& machine, const CacheOptions& options);
  // Allocates what the budgets allow (CacheOptions::reserve).
  Status reserve();

  Block access(const Extent& extent, const AccessOptions& options);
  // Requires: the blocks stand for nothing.
  void access_all(std::span<const Extent> extents, std::span<Block> blocks,
                  const AccessOptions& options);
  // For a range that may lie in a block of this shard although its first byte is another's: whether
  // there is one, and the block, if it is still there. Starts no copy.
  bool may_cover(const Range& range) const;
  bool find_there(const Extent& extent, const AccessOptions& options, Block& block);
  std::shared_ptr<PrefetchPlan> prefetch(std::span<const Extent> extents,
                                         const PrefetchOptions& options);
  void invalidate(Extent extent);
  Status forget(const Object& object, Nanoseconds timeout);
  std::vector<ObjectId> reading() const;
  void flush();
  void clear();
  Status resize(NodeId node, Bytes budget);
  // All but the percentiles, whose samples are added to the histograms.
  CacheStats stats(Histogram& wait_time, Histogram& copy_latency) const;
  Bytes budget(NodeId node) const;

  // Whose threads and locks its own are. In a child nothing of it changes any more: what was ready
  // can be read, with pins or without.
  const Origin& origin() const { return origin_; }

  // For the handles.
  void pin_again(CacheEntry& entry);
  // The state once it is not filling, or after `timeout`. `waited` adds up what one handle waits
  // for its copy, in however many calls.
  bool in_callback() const { return mover_.in_callback(); }
  BlockState wait(CacheEntry& entry, Nanoseconds timeout, Nanoseconds& waited);
  std::optional<NodeId> node_of(const CacheEntry& entry) const { return nodes_[entry.node].id; }
  void on_ready(CacheEntry& entry, std::function<void()> then);
  Error why(const Block& block) const;
  void cancel(const std::shared_ptr<PrefetchPlan>& plan);
  // Also starts copies that are due.
  Prefetch::Progress progress(const PrefetchPlan& plan);

 private:
  struct Node;
  // core.cpp
  using ForBlock = std::function<void(CacheEntry&, DeferredActions&)>;
  void for_blocks(const Range& range, const ForBlock& then) EXCLUDES(mutex_);
  void for_blocks(Node& node, const ForBlock& then) EXCLUDES(mutex_);
  // As many cells of the index, blocks or extents as are dealt with under the lock at a time: some
  // 0.1 ms.
  static constexpr std::size_t kSlice = PrefetchPlan::kSlice;
  // A remembered Destination is its node and a bit.
  static constexpr std::uint16_t kSpills = 1U << 15;
  // Victims chosen together: one heavy fence serves all of them.
  static constexpr std::size_t kVictims = 256;
  // An access, a release or the end of a copy starts at most kStarts blocks of plans. A thread that
  // makes or ends a plan, empties the cache or changes a budget starts all.
  static constexpr std::size_t kStarts = 16;
  static constexpr std::size_t kAllStarts = std::numeric_limits<std::size_t>::max();

  // A search for space that found none. Valid until let_go_ changes.
  struct FailedSearch {
    std::uint64_t length = 0, offset_in_page = 0, let_go = 0;
    std::size_t offered = 0;  // blocks that the order offered and that could not go
    bool bounded = false;     // a bound ended the search: another search may find space
  };
  struct Node {
    NodeId id{};
    std::uint64_t budget = 0;
    Frames frames;
    std::uint64_t growing = 0;   // bytes of slabs that are being allocated
    std::uint64_t used = 0;      // bytes of copies
    std::uint64_t planned = 0;   // bytes of copies that plans protect
    std::uint64_t reserved = 0;  // bytes that the plan whose turn it is waits for
    std::unique_ptr<EvictionOrder> order;
    // Chosen by the order, next to be dropped from the back: so one heavy fence serves many.
    std::vector<CacheEntry*> victims;  // has room for kVictims
    bool victims_are_scarce = false;   // the last search found less than half of what it wanted
    bool counting = false;             // a thread is to count the pins of some of them
    std::uint64_t passed = 0;  // bytes that replaced others of their size, older ones passed over
    // Why the last slab could not be had, and when it is worth trying again.
    std::optional<Error> grow_error;
    Nanoseconds grow_again{0};
    bool on_gpu = false;   // only GPUs reach it; immutable
    bool lost = false;     // and this one is lost: `grow_error` says how
    FailedSearch search;   // the one under way
    FailedSearch refused;  // the last of a demand: an equal one would find nothing either
  };
  // A slab to allocate outside the lock; its bytes are reserved.
  struct Growth {
    std::uint16_t node = 0;
    std::uint64_t bytes = 0;
  };
  struct Counts {
    std::uint64_t hits = 0, inflight_hits = 0, misses = 0, prefetched = 0, first_uses = 0, late = 0;
    std::uint64_t wasted_bytes = 0, evictions = 0, invalidations = 0, failures = 0, refusals = 0;
    std::uint64_t pinned_bytes = 0, pins = 0;
  };
  friend class DeferredActions;
  class Spare;
  class Started;
  class Targets;
  using Refusal = Block::Refusal;

  // growth: the caller is to allocate a slab; growing: another thread is at it; none: refused.
  enum class Space : std::uint8_t { found, growth, growing, none };
  // What a block to be placed needs. For a plan nothing is dropped that another planned use waits
  // for.
  struct SpaceRequest {
    std::uint16_t node = 0;
    Extent extent;
    bool by_prefetch = false;
    Priority priority = Priority::prefetch;
  };
  struct Search;

  // hits.cpp
  [[gnu::noinline]] Block access_somehow(const Extent& asked, const AccessOptions& options);
  bool hit(const Extent& extent, Block& block, bool equal_first);
  // The blocks that can be had without the lock; false: call access() for the others.
  bool hit_all(std::span<const Extent> extents, std::span<Block> blocks);
  bool hits_open() const;
  template <bool kEqual>
  PinSlot* pin_open(Reader& reader, CacheEntry& entry, const Range& range, const Extent& asked);
  [[gnu::cold, gnu::noinline]] bool pin_victim(PinSlot& slot, CacheEntry& entry,
                                               const Extent& asked, bool equal);
  void help_to_grow() EXCLUDES(mutex_);
  CacheEntry* find_wider(const Range& range) const;
  void count_pins(std::span<CacheEntry* const> entries) REQUIRES(mutex_);
  void count_pins_of(std::uint32_t flag) REQUIRES(mutex_);
  void pin_in_slot(CacheEntry& entry, Block& block) REQUIRES(mutex_);
  PinSlot* free_slot() REQUIRES(mutex_);
  void open(CacheEntry& entry) REQUIRES(mutex_);
  void notice(CacheEntry& entry) REQUIRES(mutex_);
  bool may_go(std::span<Frame* const> frames, bool planned_too) REQUIRES(mutex_);
  void unpin_locked(CacheEntry& entry, PinSlot* slot, bool own) EXCLUDES(mutex_);

  // access.cpp
  // For the extents whose block stands for nothing yet.
  void access(std::span<const Extent> extents, std::span<Block> blocks,
              const AccessOptions& options);
  void refuse(const Extent& extent, Block& block, Error why);
  void refuse(const Extent& extent, Block& block, Refusal why);
  void refuse_space(const SpaceRequest& request, Block& block) REQUIRES(mutex_);
  void serve(const Extent& extent, const AccessOptions& options, Block& block,
             DeferredActions& deferred) REQUIRES(mutex_);
  void serve_all(std::span<const Extent> extents, std::span<Block> blocks,
                 const AccessOptions& options) EXCLUDES(mutex_);
  void miss(const Extent& extent, Block& block, const AccessOptions& options, Started& all)
      EXCLUDES(mutex_);
  void count_miss(const Extent& extent, const AccessOptions& options, DeferredActions& deferred)
      REQUIRES(mutex_);
  bool may_wait(const SpaceRequest& request, const AccessOptions& options,
                std::optional<Patience>& patience) REQUIRES(mutex_);
  CacheEntry* find(const Range& range) const REQUIRES(mutex_);
  void hit(CacheEntry& entry, const Extent& extent, const AccessOptions& options, Block& block,
           DeferredActions& deferred) REQUIRES(mutex_);
  void promote(Fill& fill, Priority priority, DeferredActions& deferred) REQUIRES(mutex_);
  void pin(CacheEntry& entry) REQUIRES(mutex_);
  void unpin(CacheEntry& entry, DeferredActions& deferred) REQUIRES(mutex_);
  void start(CacheEntry& entry, const SpaceRequest& request, DeferredActions& deferred)
      REQUIRES(mutex_);
  bool may_enter_index(const Range& range, DeferredActions& deferred) REQUIRES(mutex_);
  void submit(std::span<CacheEntry* const> entries, Priority asked) noexcept EXCLUDES(mutex_);
  void follow(CacheEntry& entry, const Transfer& transfer, Priority asked) noexcept
      EXCLUDES(mutex_);
  bool hear(CacheEntry& entry, const Transfer& transfer) EXCLUDES(mutex_);
  void remember(CacheEntry& entry, const Transfer& transfer, Priority asked) EXCLUDES(mutex_);
  bool complete_at_once(CacheEntry& entry, const Transfer& transfer, bool may_call) noexcept
      EXCLUDES(mutex_);
  bool complete(CacheEntry& entry, const Error* why, Nanoseconds took, bool may_call) noexcept
      EXCLUDES(mutex_);
  void end_copy(CacheEntry& entry, const Error* why, Nanoseconds took, DeferredActions& deferred)
      REQUIRES(mutex_);
  void give_up(CacheEntry& entry, const Error& error) REQUIRES(mutex_);
  void sleep(CacheEntry& entry, Nanoseconds timeout);
  bool publish(CacheEntry& entry, BlockState state) REQUIRES(mutex_);
  Result<Destination> destination(const Extent& extent, std::optional<NodeId> initiator) const;
  Result<std::vector<std::uint16_t>> ask_destinations(const Extent& extent,
                                                      std::optional<NodeId> initiator) const;
  Result<Placement> resolve_here(const Placement& placement, std::optional<NodeId> initiator) const;
  void lose_if_gone(std::uint16_t node) noexcept EXCLUDES(mutex_);
  std::optional<NodeId> calling_node() const;

  // space.cpp
  Space make_space(CacheEntry& entry, const SpaceRequest& request, std::optional<Growth>& grow,
                   DeferredActions& deferred) REQUIRES(mutex_);
  bool was_refused(const SpaceRequest& request) const REQUIRES(mutex_);
  bool take(CacheEntry& entry, const SpaceRequest& request) REQUIRES(mutex_);
  bool evict_bytes_for(const SpaceRequest& request, DeferredActions& deferred) REQUIRES(mutex_);
  bool evict_row_for(CacheEntry& entry, const SpaceRequest& request, DeferredActions& deferred)
      REQUIRES(mutex_);
  bool search_row_for(CacheEntry& entry, const SpaceRequest& request, unsigned effort,
                      DeferredActions& deferred) REQUIRES(mutex_);
  void count_pins_in_slots(const Node& node) REQUIRES(mutex_);
  bool pick_victims(Node& node) REQUIRES(mutex_);
  std::size_t most_victims(const Node& node) const REQUIRES(mutex_);
  bool choose_victims(Node& node) REQUIRES(mutex_);
  bool choose_victims_ahead(Node& node) REQUIRES(mutex_);
  void count_victims(std::uint16_t number, Started& before) EXCLUDES(mutex_);
  void enter_order(CacheEntry& entry, EvictionBlock::Use use) REQUIRES(mutex_);
  void offer(CacheEntry& entry) REQUIRES(mutex_);
  void spare(CacheEntry& entry) REQUIRES(mutex_);
  bool evict_similar_for(CacheEntry& entry, const SpaceRequest& request, DeferredActions& deferred)
      REQUIRES(mutex_);
  bool take_row_of(CacheEntry& victim, CacheEntry& entry, Search& search, DeferredActions& deferred)
      REQUIRES(mutex_);
  bool evict_victim_for(CacheEntry& entry, const SpaceRequest& request, DeferredActions& deferred)
      REQUIRES(mutex_);
  bool evict_in_slab_for(CacheEntry& entry, const SpaceRequest& request, bool planned_too,
                         DeferredActions& deferred) REQUIRES(mutex_);
  bool sacrifice_for(CacheEntry& entry, const SpaceRequest& request, DeferredActions& deferred)
      REQUIRES(mutex_);
  bool replace(CacheEntry& victim, CacheEntry& entry, const SpaceRequest& request,
               DeferredActions& deferred) REQUIRES(mutex_);
  void take_row(CacheEntry& entry, const SpaceRequest& request, const Frames::Row& row,
                DeferredActions& deferred) REQUIRES(mutex_);
  std::vector<std::byte*> slabs_for(const SpaceRequest& request, bool planned_too) REQUIRES(mutex_);
  std::byte* surplus_slab(const Node& node) REQUIRES(mutex_);
  bool free_slabs_for(const SpaceRequest& request, bool planned_too, DeferredActions& deferred)
      REQUIRES(mutex_);
  // To be asked under mutex_; not annotated, since the orders ask it through a callback.
  static bool droppable(const CacheEntry& entry, bool planned_too);
  void drop_all() EXCLUDES(mutex_);
  void drop_all(Node& node) EXCLUDES(mutex_);
  void drop(CacheEntry& entry, CacheEvent::Kind why, DeferredActions& deferred) REQUIRES(mutex_);
  void abandon(CacheEntry& entry, DeferredActions& deferred) REQUIRES(mutex_);
  void give_frame(CacheEntry& entry) REQUIRES(mutex_);
  void reap(CacheEntry& entry) REQUIRES(mutex_);
  void visit_planned(const Node& node, const std::function<bool(CacheEntry&)>& take)
      REQUIRES(mutex_);
  bool fit_budget(Node& node, DeferredActions& deferred) REQUIRES(mutex_);
  bool drop_until_fit(Node& node, std::span<CacheEntry* const> blocks, DeferredActions& deferred)
      REQUIRES(mutex_);
  void fit_budget_by(Node& node, CacheEntry* freed, DeferredActions& deferred) REQUIRES(mutex_);
  bool free_surplus_slab(Node& node, DeferredActions& deferred) REQUIRES(mutex_);

  // slabs.cpp
  bool growing_is_paused(const Node& node) const REQUIRES(mutex_);
  std::optional<Growth> growth(const SpaceRequest& request) REQUIRES(mutex_);
  void grow(const Growth& growth) EXCLUDES(mutex_);
  Status reserve_all_of(std::uint16_t node) EXCLUDES(mutex_);
  Status check_reserve(NodeId id, Bytes budget) EXCLUDES(mutex_);
  bool await_growth(std::uint32_t seen) EXCLUDES(mutex_);
  Result<std::unique_ptr<Buffer>> new_slab(const Growth& growth) const;
  Status add_slab(Node& node, std::unique_ptr<Buffer> slab, DeferredActions& deferred)
      REQUIRES(mutex_);
  void give_back(std::vector<std::unique_ptr<Buffer>> slabs) EXCLUDES(mutex_);
  void give_back_slabs() EXCLUDES(mutex_);
  void free_slab(Node& node, const std::byte* begin, DeferredActions& deferred) REQUIRES(mutex_);

  // prefetch.cpp
  bool take_pump_due() { return pump_due_.load() && pump_due_.exchange(false); }
  bool stall() REQUIRES(mutex_);
  void go_on(DeferredActions& deferred) REQUIRES(mutex_);
  void pump(bool may_grow, std::size_t most = kStarts) noexcept EXCLUDES(mutex_);
  bool begin_pump() EXCLUDES(mutex_);
  void start_most(bool may_grow, std::size_t most) EXCLUDES(mutex_);
  CacheEntry* start_next(bool may_grow, Spare& spare, std::optional<Growth>& grow,
                         DeferredActions& deferred) REQUIRES(mutex_);
  CacheEntry* start_item(PlanItem& item, bool may_grow, Spare& spare, std::optional<Growth>& grow,
                         DeferredActions& deferred) REQUIRES(mutex_);
  void fill(PrefetchPlan& plan, std::span<const Extent> extents) const;
  void enlist(const std::shared_ptr<PrefetchPlan>& plan) EXCLUDES(mutex_);
  std::uint64_t share_of(const Node& node) const REQUIRES(mutex_);
  bool grants(const PlanItem& item, std::uint64_t bytes, DeferredActions& deferred)
      REQUIRES(mutex_);
  void reserve(const PlanItem& item, std::uint64_t bytes) REQUIRES(mutex_);
  void set_idle(PrefetchPlan& plan, bool idle) REQUIRES(mutex_);
  void take_back(const PlanItem& item, std::uint64_t bytes, DeferredActions& deferred)
      REQUIRES(mutex_);
  std::uint64_t run_from(const PlanItem& item, std::uint64_t most) REQUIRES(mutex_);
  std::uint64_t not_there_of(const PlanItem& item, std::uint64_t run) REQUIRES(mutex_);
  void adopt(PlanItem& item, CacheEntry& entry) REQUIRES(mutex_);
  void let_go(PlanItem& item, PlanItem::State state) REQUIRES(mutex_);
  void let_go_unused(PlanItem& item, PlanItem::State state, DeferredActions& deferred)
      REQUIRES(mutex_);
  std::uint64_t window_of(const PlanItem& item) const REQUIRES(mutex_);
  bool are_concerned(const Range& range) const REQUIRES(mutex_);
  void use_planned(const Range& range, const AccessOptions& options, DeferredActions& deferred)
      REQUIRES(mutex_);
  void use(PrefetchPlan& plan, const Range& range, DeferredActions& deferred) REQUIRES(mutex_);
  void pass_over(PrefetchPlan& plan, std::size_t& effort, DeferredActions& deferred)
      REQUIRES(mutex_);
  void unplan(CacheEntry& entry, PlanItem::State state) REQUIRES(mutex_);
  bool give_up(PrefetchPlan& plan) REQUIRES(mutex_);
  static bool is_unwanted(const CacheEntry& entry);
  void end_plan(const std::shared_ptr<PrefetchPlan>& plan) EXCLUDES(mutex_);
  void end_plans() EXCLUDES(mutex_);

  bool being_read(ObjectId object) const REQUIRES(mutex_);

  std::uint64_t bytes_in_slots() const REQUIRES(mutex_);
  void emit(CacheEvent::Kind kind, const Extent& extent, bool by_prefetch) noexcept
      REQUIRES(mutex_);

  // Immutable after construction.
  const Origin origin_;
  Mover& mover_;
  const CacheOptions options_;
  const std::size_t shard_;   // its number
  const std::size_t shards_;  // of the cache
  std::vector<std::optional<NodeId>> node_of_cpu_;
  mutable Destinations destinations_;  // Thread-safe

  bool hits_open_ = true;  // no observer, and orders that only mark

  // Read by hits, written seldom. A plan waits for a slab, which only a thread of the user may
  // allocate.
  std::atomic<bool> growth_due_{false};
  // Changed under mutex_; hits look into it without.
  RangeIndex<CacheEntry> index_;
  Readers readers_;

  alignas(64) mutable Mutex mutex_;
  EntryPool entries_ GUARDED_BY(mutex_);
  // The vector itself is immutable after construction, and so are the ids; the rest of a Node is
  // guarded by mutex_.
  std::vector<Node> nodes_;
  // Used again by each search.
  Frames::Row row_ GUARDED_BY(mutex_);
  std::vector<CacheEntry*> asked_ GUARDED_BY(mutex_);
  Counts counts_ GUARDED_BY(mutex_);
  IntrusiveList<Fill, &Fill::next, &Fill::previous> fills_ GUARDED_BY(mutex_);  // in flight
  Nanoseconds latency_ GUARDED_BY(mutex_){0};  // of copies, a mean that forgets

  std::vector<std::shared_ptr<PrefetchPlan>> plans_ GUARDED_BY(mutex_);
  std::size_t turn_ GUARDED_BY(mutex_) = 0;  // whose plan's turn it is
  std::size_t idle_ GUARDED_BY(mutex_) = 0;  // plans that are
  Nanoseconds stall_look_ GUARDED_BY(mutex_){0};
  // Something happened that may let a plan go on. Set under mutex_, not read by hits.
  std::atomic<bool> pump_due_{false};
  bool pumping_ GUARDED_BY(mutex_) = false;
  bool pump_again_ GUARDED_BY(mutex_) = false;
  // A plan or an access found no space: whatever becomes droppable is a reason to look again.
  bool stalled_ GUARDED_BY(mutex_) = false;
  // Changes whenever something may have become droppable that a search had found held.
  std::uint64_t let_go_ GUARDED_BY(mutex_) = 1;
  // Threads that wait on running_: whoever lowers it wakes them.
  unsigned watchers_ GUARDED_BY(mutex_) = 0;
  // Slabs that are given back to the kernel, which may refuse others meanwhile, and how many were.
  std::size_t unmapping_ GUARDED_BY(mutex_) = 0;
  std::uint64_t unmapped_ GUARDED_BY(mutex_) = 0;
  // Changes, under mutex_, whenever a slab came, was refused or is gone, and, while somebody waits
  // for space, whenever a block was let go.
  std::atomic<std::uint32_t> space_changes_{0};

  Histogram wait_time_;
  Histogram copy_latency_;
  // Copies whose end has not been wholly dealt with. Changed under mutex_; the destructor waits.
  std::atomic<std::uint32_t> running_{0};
};

// Where a missing block may go: where its placement wants it, and, as far as that spills, one node
// after the other while they have no space.
class CacheCore::Targets {
 public:
  Targets(const CacheCore& core, const Extent& extent, std::optional<NodeId> initiator)
      : core_(core), extent_(extent), initiator_(initiator) {
    if (!extent.valid() || extent.length.value == 0) return;
    first_ = core.destination(extent, initiator);
    spills_ = first_ && first_->spills;
  }

  // The error: there is none.
  const Result<Destination>& first() const { return first_; }
  // Whether there may be another than the last given.
  bool more() const { return spills_ && (nodes_.empty() || at_ + 1 < nodes_.size()); }
  // The next; the first, if there is none after all. Asks the policy: not to be called with a lock.
  std::uint16_t next();
  // From the beginning.
  std::uint16_t again() {
    at_ = 0;
    return first_->node;
  }

 private:
  const CacheCore& core_;
  const Extent& extent_;
  const std::optional<NodeId> initiator_;
  Result<Destination> first_ = Destination{};
  bool spills_ = false;
  std::vector<std::uint16_t> nodes_;  // empty: not asked for yet
  std::size_t at_ = 0;
};

// Blocks whose copies are submitted together: at the latest when it goes.
class CacheCore::Started {
 public:
  Started(CacheCore& core, Priority asked) : core_(core), asked_(asked) {}
  ~Started() { submit(); }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  void add(CacheEntry& entry) {
    entries_[count_++] = &entry;
    if (count_ == entries_.size()) submit();
  }
  bool empty() const { return count_ == 0; }
  // Before anything is waited for: nobody else submits them.
  void submit() {
    if (count_ > 0) core_.submit({entries_.data(), std::exchange(count_, 0)}, asked_);
  }

 private:
  CacheCore& core_;
  const Priority asked_;
  std::array<CacheEntry*, kStarts> entries_;
  std::size_t count_ = 0;
};

// Gives an entry back that did not become a block.
class CacheCore::Spare {
 public:
  explicit Spare(CacheCore& core) : core_(core) {}
  ~Spare() {
    if (entry_ == nullptr) return;
    const MutexLock lock(core_.mutex_);
    core_.give_frame(*entry_);
    core_.entries_.give(*entry_);
  }
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;

  // All that start() needs, so that it cannot fail.
  CacheEntry& get() {
    core_.mutex_.assert_held();
    if (entry_ == nullptr) entry_ = &core_.entries_.take();
    core_.index_.make_room();
    return *entry_;
  }
  CacheEntry& use() { return *std::exchange(entry_, nullptr); }

 private:
  CacheCore& core_;
  CacheEntry* entry_ = nullptr;
};

}  // namespace headrace
