// SPDX-License-Identifier: Apache-2.0
// Keeps copies of extents in fast memory, fetches planned ones ahead of their use, and never serves
// old bytes. In a child of fork() its blocks stand for their sources (docs/design/fork.md).
//
// A block is a cached copy of an extent; holding a Block pins it. A lookup waits for no copy: it
// finds one, finds it in flight, or starts it. Where the source is byte-addressable there is always
// a place to read from now. Copies in the memory of a GPU that is no NUMA node are for code of that
// GPU, by their device_address(): CPUs never see them, and read the source. Copies are read-only: a
// changed source is announced by invalidate(). An object must live until no copy of it is in
// flight: forget() it before it goes. A GPU that is lost takes its blocks with it: copies there
// fail, no access finds what was there, and it takes no more; what was to go there goes where the
// placement spills to, or stands for its source. It is not a page cache: what it holds was asked
// for by extent, and nothing is written back.
//
// States of a block:
//   absent -> filling -> ready  -> evicting -> absent
//                    \-> failed ----------------^
// A block is evicting once it has left the index (dropped or invalidated) while a Block holds it:
// its bytes are good for the holder, but no access finds them any more.
//
// Without memory for what the cache keeps, access() gives a block that stands for the source, plans
// go on later, and all else throws std::bad_alloc and can be called again.
//
// Cache is Thread-safe. Block and Prefetch are Thread-compatible: one thread at a time per handle.
#pragma once

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/eviction.h"
#include "headrace/export.h"
#include "headrace/mover.h"
#include "headrace/object.h"
#include "headrace/placement.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

class Cache;
class CacheCore;
class CacheShards;
class Prefetch;
struct CacheEntry;
struct PrefetchPlan;

enum class BlockState : std::uint8_t { absent, filling, ready, failed, evicting };

std::string_view to_string(BlockState state);

// A pin on the copy of one extent. Move-only; clone() for another pin. The bytes it gave stay good
// until it goes, whatever happens in the cache meanwhile. Must not outlive its Cache.
class Block {
 public:
  Block() = default;  // stands for nothing: absent
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block() {
    if (entry_ != nullptr) let_go();
  }

  Block clone() const;

  // The best place to read from at this moment, without waiting: the copy once it is ready, unless
  // only a GPU reaches it, else the source if a CPU can address it, else nothing.
  std::optional<std::span<const std::byte>> now() const {
    if (bytes_ != nullptr) return std::span(bytes_, extent_.length.value);
    return look();
  }
  // The copy, waiting for it at most `timeout`. If it cannot be had (the copy failed, or there was
  // no space for it) the source if a CPU can address it, and the failure is counted; for a file the
  // Error (of the copy, which may cover more: access() tries the extent again). timed_out: not
  // ready yet; wait again. invalid: not ready, and this thread is in a callback of the Mover
  // (Mover::in_callback), which the copy may need. A copy that only a GPU reaches is waited for,
  // then the source given; for a file unsupported.
  Result<std::span<const std::byte>> wait(Nanoseconds timeout = std::chrono::seconds{60}) const;

  // Where code of the GPU node() finds the copy (a CUdeviceptr), once it is ready, if only GPUs
  // reach it; good as long as the bytes are. Whatever a stream is to do with it must be done before
  // the last pin goes: the cache knows nothing of streams. Never in a child of fork().
  std::optional<std::uint64_t> device_address() const;
  // The same, waiting for it at most `timeout`. timed_out and invalid: as wait(). unsupported: the
  // copy is where CPUs reach it: wait() has it. Else the Error of the copy, or why there is none.
  Result<std::uint64_t> wait_on_gpu(Nanoseconds timeout = std::chrono::seconds{60}) const;

  BlockState state() const;
  // Whether the copy was there already when access() was called. A copy that ended since then, or
  // that another access had started, is no hit; nor is what stands for its source, or for nothing.
  bool hit() const { return hit_; }
  // Calls `then` once the copy is there or has failed: at once in this thread if that is so (or if
  // there is no copy), else from the thread that ends it, as Transfer::on_done() does, with no lock
  // held; it must not be held up, nor destroy the cache, nor throw. The Block may go before.
  void on_ready(std::function<void()> then) const;

  // co_await block: what wait() gives, once it is there. Resumes as a callback of on_ready().
  bool await_ready() const { return state() != BlockState::filling; }
  void await_suspend(std::coroutine_handle<> waiter) const {
    on_ready([waiter] { waiter.resume(); });
  }
  Result<std::span<const std::byte>> await_resume() const { return wait(Nanoseconds{0}); }

  // The node of the copy once it is ready, else the one that now() would read; nothing when it has
  // nothing to read.
  std::optional<NodeId> node() const;
  // The extent asked for (the copy may cover more).
  Extent extent() const { return extent_; }

 private:
  friend class CacheCore;
  std::optional<std::span<const std::byte>> look() const;
  void let_go() noexcept;
  Status wait_for_end(Nanoseconds timeout) const;
  enum class Refusal : std::uint8_t { none, told, invalid, too_large, no_space, no_memory };

  // A ready copy; `bytes` is null if only a GPU reaches it.
  Block(CacheCore& cache, CacheEntry& entry, std::atomic<CacheEntry*>& slot, const Extent& extent,
        const std::byte* bytes)
      : cache_(&cache), entry_(&entry), slot_(&slot), bytes_(bytes), extent_(extent), hit_(true) {}

  CacheCore* cache_ = nullptr;
  CacheEntry* entry_ = nullptr;               // null: no copy, only the source
  std::atomic<CacheEntry*>* slot_ = nullptr;  // what pins it; null: counted in the entry
  const std::byte* bytes_ = nullptr;          // known from the start; null: look()
  Extent extent_;
  std::unique_ptr<Error> refused_;   // Refusal::told
  mutable Nanoseconds waited_{0};    // so far, in wait() calls that timed out
  Bytes refused_budget_;             // then
  std::uint16_t refused_by_ = 0;     // the cache's number of the node
  Refusal refusal_ = Refusal::none;  // why there is no entry
  bool missing_ = false;             // while its access goes on
  bool hit_ = false;
};

struct AccessOptions {
  Priority priority = Priority::demand;
  // Who will read it; the placement policy is told. Nothing: the node of the calling CPU.
  std::optional<NodeId> initiator = {};
  // The plan whose extent is used by this access, by whichever of its threads; the handle must stay
  // where it is meanwhile. A plan that was named once counts only accesses that name it. Nothing:
  // the access counts for all plans that were never named, as far as it lies where they are used
  // (see PrefetchOptions::window).
  const Prefetch* plan = nullptr;
  // How long to wait for space when all is held or in flight, before the access is refused. The
  // wait ends as soon as enough was let go; there is none in a callback of the Mover.
  Nanoseconds space_timeout{0};
  // Called again and again during that wait, with no lock held; true ends it. Null: nothing is.
  const std::function<bool()>* stop = nullptr;
};

struct PrefetchOptions {
  // How long before its use an extent should be ready. The plan keeps as many bytes ahead of the
  // last used extent as are used up in this time at the pace seen so far, and at least enough to
  // cover the copy latency seen so far.
  Nanoseconds lead = std::chrono::milliseconds{50};
  // Most bytes fetched ahead and not yet used; at most half of the node's budget, of which each of
  // several plans has its share. A plan whose consumer pauses (for a second, and longer than usual)
  // may lose what it has to others. Neighbours may be fetched as one block of up to 1 MiB and a
  // 64th of the budget, which a Block of a part of it pins.
  // What lies more than this behind the furthest use is passed over: no longer protected, not
  // fetched any more. An access that names no plan and lies more than this ahead of the furthest
  // use is taken for somebody else's: it moves nothing, unless many go on from it and none comes
  // here.
  Bytes window = 64_MiB;
  std::optional<NodeId> initiator = {};
  // Only accesses that name the plan are uses of it, from the beginning; else from the first that
  // does. Say so where others access the same objects before that.
  bool named = false;
};

// A running prefetch plan. Dropping the handle cancels it. It may outlive its Cache, but must not
// be used or dropped while another thread destroys that.
class Prefetch {
 public:
  Prefetch() = default;
  Prefetch(Prefetch&&) noexcept;
  Prefetch& operator=(Prefetch&&) noexcept;
  ~Prefetch();

  // Starts no more copies, drops most of those that no engine has begun with, unless they were
  // accessed, and takes the protection from those not yet used. Does not wait.
  void cancel();
  struct Progress {
    std::size_t planned = 0;
    std::size_t started = 0;  // copy started, or found in the cache
    std::size_t used = 0;     // accessed at least once since
    bool cancelled = false;
  };
  Progress progress() const;

 private:
  friend class CacheCore;
  friend class CacheShards;
  // The part of each shard; null where a shard has none.
  std::vector<std::shared_ptr<PrefetchPlan>> plans_;
};

struct CacheStats {
  std::uint64_t hits = 0;           // ready at access
  std::uint64_t inflight_hits = 0;  // in flight at access
  std::uint64_t misses = 0;         // copy started by the access, or refused
  std::uint64_t prefetched = 0;     // copies started by a plan, each of one or more of its extents
  std::uint64_t first_uses = 0;     // prefetched copies used for the first time
  std::uint64_t late = 0;           // of those: not ready at that time
  Bytes wasted_bytes;               // prefetched and dropped without a use
  std::uint64_t evictions = 0;      // blocks dropped for space, or by flush(), clear(), resize()
                                    // or the end of a plan
  std::uint64_t invalidations = 0;  // blocks dropped by invalidate()
  std::uint64_t failures = 0;       // copies that failed
  std::uint64_t refusals = 0;       // no space or no placement: served from the source
  Bytes bytes_used;                 // by copies now, all nodes
  Bytes bytes_pinned;
  std::uint64_t blocks = 0;
  // Nanoseconds; nothing when nothing was counted yet.
  struct Percentiles {
    std::uint64_t count = 0;
    std::optional<std::uint64_t> p50, p90, p99;
  };
  Percentiles wait_time;     // of handles that had to wait, until their copy was there or failed
  Percentiles copy_latency;  // from start to ready
};

// What happened to a block and when: for timelines and tests. The object of the extent may be gone
// when a block is dropped or fails: compare it, do not read through it.
struct CacheEvent {
  enum class Kind : std::uint8_t {
    fill_started,
    ready,
    failed,
    hit,
    inflight_hit,
    miss,
    evicted,
    invalidated
  };
  Kind kind;
  Extent extent;
  Nanoseconds time;
  bool by_prefetch = false;
};

std::string_view to_string(CacheEvent::Kind kind);

struct CacheOptions {
  // Bytes of copies per node, memory of the host or of a GPU. A node without a budget takes none.
  std::vector<std::pair<NodeId, Bytes>> budgets;
  // Asked for lengths rounded up to a power of two; its answers are remembered. A copy goes to the
  // first node with a budget that the placement names; where that has no space for an access, and
  // the placement spills to nodes that it names, to the next of them. Plans do not spill.
  PlacementPolicy placement = place::nearest_fast;
  // Instead of the Mover's route policy.
  std::optional<RoutePolicy> route = {};
  EvictionFactory eviction = s3_fifo;
  // Frames are cut from slabs of at least this size, allocated when first needed: of a 1024th of
  // the node's budget where that is more, up to 1 GiB.
  Bytes slab = 32_MiB;
  PageSize pages = PageSize::transparent;
  // Allocate all slabs in create() and keep them through flush() and clear(), so that no access
  // pays for the first touch of their pages.
  bool reserve = false;
  // Parts of the cache with a lock, an eviction order and an equal share of each budget: misses in
  // different shards do not wait for each other. A power of two up to 256. 0: one for each two
  // CPUs, at most 64, each with a budget of at least 256 MiB on every node; one with an observer.
  // A shard holds every N-th stretch of each object, of a 64th of its
  // budget, at most 16 MiB. With N shards a block can be
  // as large as a budget / N, and pins of more than about three quarters of a budget may be
  // refused, since one shard is full before the others.
  std::size_t shards = 0;
  // Called under a lock of the cache (of a shard: by several threads at once): must be quick and
  // must not call the cache.
  std::function<void(const CacheEvent&)> observer = {};
};

class Cache {
 public:
  // Borrows `mover` (and its machine): it outlives the cache. invalid: a budget for storage, no
  // budget at all, or a number of shards that is no power of two or too large for a budget.
  // With CacheOptions::reserve, also the errors of allocate(). If the budgets exceed the free
  // memory, create() returns exhausted before it allocates any.
  static Result<std::unique_ptr<Cache>> create(Mover& mover, CacheOptions options);
  // Cancels plans, waits for copies in flight. Requires: no Block is left.
  ~Cache();

  // The block of `extent`: a pin on a ready copy, on one in flight, or on one started now. It waits
  // for no copy, but a miss may take a while: it may allocate a slab, or wait (at most 30 s) for
  // one that another thread allocates (CacheOptions::reserve spares both), and the engine may do a
  // small copy at once, in this thread. An extent inside a cached larger one is served from it; one
  // that overlaps others only in part gets a copy of its own. Where no copy can be made (no space
  // among pins, larger than the budget, no faster node) the block stands for the source: it is
  // absent, and for a file wait() says why. An invalid
  // extent gives a block whose wait() says so; an empty one is ready.
  Block access(const Extent& extent);
  Block access(const Extent& extent, const AccessOptions& options);
  // The same for many: those that are ready without the lock, of the others what is there with the
  // lock taken once for many, misses one by one. Requires: blocks.size() == extents.size().
  void access(std::span<const Extent> extents, std::span<Block> blocks,
              const AccessOptions& options = {});

  // Plans the use of `extents` in this order and fetches them ahead. Each is protected from
  // eviction until its first use or the cancellation.
  Prefetch prefetch(std::span<const Extent> extents, const PrefetchOptions& options = {});

  // Drops all copies that overlap `extent`. After it returns no access sees bytes read before it
  // was called, even from a copy that was in flight; blocks already held keep what they have.
  // Requires (for the promise): the source was changed before the call.
  void invalidate(Extent extent);
  // Drops all copies of `object` and waits, at most `timeout`, until no engine reads it: after this
  // it may go, if no plan and no access names it any more. timed_out: it is still being read.
  Status forget(const Object& object, Nanoseconds timeout = std::chrono::seconds{60});
  // The objects that copies in flight and plans read from: those must live.
  std::vector<ObjectId> reading() const;
  // Drops all copies that nobody holds and no plan protects.
  void flush();
  // Drops all copies; those held live until their last Block goes. Cancels plans.
  void clear();
  // Changes a node's budget; shrinks at once as far as pins allow, and with CacheOptions::reserve
  // allocates at once what it grows by. absent: the node had none. With `reserve` also exhausted,
  // if less is free and nothing has changed, and the errors of allocate(), after which the budget
  // has changed.
  Status resize(NodeId node, Bytes budget);

  CacheStats stats() const;

 private:
  explicit Cache(std::unique_ptr<CacheShards> shards);
  std::unique_ptr<CacheShards> shards_;
  CacheCore* only_ = nullptr;  // the only shard; null: there are several
};

}  // namespace HEADRACE_API headrace
