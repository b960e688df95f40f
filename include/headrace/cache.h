// SPDX-License-Identifier: Apache-2.0
// A cache of extents of buffers, memory ranges and files in fast memory. Prefetches by plan.
//
//   auto cache = Cache::create(mover, {.budgets = {{dram, 1_GiB}}});
//   const Prefetch ahead = (*cache)->prefetch(extents);  // optional: the order of use
//   for (const Extent& extent : extents) {
//     const Block block = (*cache)->access(extent, {.plan = &ahead});  // a pin on the copy
//     if (const auto bytes = block.wait()) use(*bytes);                // the copy, or an Error
//   }
//
// A block is a cached copy of an extent. A Block (the handle) pins it.
//
// Promises:
// - access() waits for no copy. It finds a block that is ready or in flight, or starts one.
// - Where a CPU can address the source, a Block always has a place to read from at once.
// - No access returns old bytes, if each change of a source is followed by invalidate().
// - Only extents that were asked for are cached, and the rest of the chunks of a UserSource: it is
//   no page cache.
//
// Writing (CacheOptions::writable):
//
//   Block page = (*cache)->access(extent, {.write = true});  // no other Block holds these bytes
//   if (auto bytes = page.wait_to_write()) change(*bytes);   // all see them after its release
//   const Status safe = (*cache)->sync();                    // the released ones: on the device
//
// - One Block at a time holds a block for writing, and no other Block pins it meanwhile. Other
//   accesses to its bytes wait in access(), at most AccessOptions::lock_timeout. So no access sees
//   a half-written block. A thread that holds a Block and accesses the same bytes for writing waits
//   for itself: release it first.
// - A changed block is *dirty*: accesses read it, and the source is older. It goes back to the
//   source when its space is needed, when less than a quarter of the budget is clean, in flush(),
//   clear(), forget() and the destructor, and in write_back() and sync(). These start in the order
//   in which blocks became dirty, except that those whose space is needed go first. A block is
//   never in two write-backs at once, and goes back once per change or for many changes.
// - Where bytes are: after the release of the Block in the cache only, lost with the process; after
//   write_back() in the source, for a file lost with the machine; after sync() on the device.
// - A failed write-back (a full device, a file that vanished) keeps the dirty block. It is tried
//   again by the next write_back(), sync(), flush(), clear() or forget(), and for its space after a
//   pause of 0.1 to 10 s. Meanwhile other dirty blocks go back.
// - A Block without a copy has no bytes: the source may be older. wait() says why.
// - While a block is dirty, an access that would write another range across it is refused.
//
// Requires: an object lives until no copy of it is in flight, no block of it is dirty and, for a
// file, sync() has succeeded after its last write-back. Call forget() before destroying it.
//
// States of a block:
//
//   absent -> filling -> ready  -> evicting -> absent
//                    \-> failed ----------------^
//
// A block is `evicting` when it was dropped or invalidated while a Block holds it. The holder may
// read its bytes; no access finds it.
//
// Cache is Thread-safe. Block and Prefetch are Thread-compatible: one thread at a time per handle.
//
// Cost: a hit takes no lock; a miss takes one twice. A block costs at most 138 bytes besides its
// own (docs/design/cache.md).
//
// Rare cases:
// - GPU memory that is no NUMA node: its copies are for code of that GPU (device_address()). CPUs
//   read the source instead.
// - A lost GPU: copies there fail, and no access finds its blocks. New copies go where the
//   placement spills to; otherwise the Block has no copy and reads the source.
// - No memory for the cache's own data: access() returns a Block without a copy, and plans continue
//   later. All other functions throw std::bad_alloc and can be called again.
// - A child of fork(): ready copies that a Block holds can be read. New Blocks have no copy and
//   read the source (docs/design/fork.md).
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

#include "headrace/cache/stats.h"
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
struct CacheExplanation;
struct PrefetchPlan;

enum class BlockState : std::uint8_t { absent, filling, ready, failed, evicting };

std::string_view to_string(BlockState state);

// A pin on the copy of one extent. Move-only; clone() makes another pin, for reading only: a clone
// of a Block for writing has no copy. The bytes that it returned stay valid until it is destroyed.
// Must not outlive its Cache.
class Block {
 public:
  Block() = default;  // absent; has no extent
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block() {
    if (entry_ != nullptr) let_go();
  }

  Block clone() const;

  // The best place to read from now, without waiting: the copy if it is ready and a CPU can address
  // it; else the source if a CPU can address it; else nothing.
  std::optional<std::span<const std::byte>> now() const {
    if (bytes_ != nullptr) return std::span(bytes_, extent_.length.value);
    return look();
  }
  // The copy; waits for it at most `timeout`. If there is no copy (it failed, there was no space,
  // or only a GPU reaches it), returns the source if a CPU can address it. CacheStats counts
  // failures. Errors:
  // - timed_out: the copy is not ready yet; wait again.
  // - invalid: the copy is not ready, and this thread is in a callback of the Mover
  //   (Mover::in_callback), which the copy may need.
  // - unsupported: only a GPU reaches the copy, and the source is a file.
  // - the copy's own error, if the source is a file. The copy may cover more than the extent, so
  //   access() may succeed for the extent alone.
  Result<std::span<const std::byte>> wait(Nanoseconds timeout = std::chrono::seconds{60}) const;

  // The bytes to change, of a Block that access() gave with AccessOptions::write. Waits for the
  // copy as wait() does. From this call until the release of the Block they count as changed.
  // Errors: as for wait(); invalid: an access without AccessOptions::write; unsupported: a child of
  // fork().
  Result<std::span<std::byte>> wait_to_write(Nanoseconds timeout = std::chrono::seconds{60});

  // The address of the copy for code of the GPU node() (a CUdeviceptr), if the copy is ready and
  // only GPUs reach it. Valid as long as the bytes. The cache knows no streams: work of a stream on
  // the copy must be done before the last pin is released. Nothing in a child of fork().
  std::optional<std::uint64_t> device_address() const;
  // Like device_address(); waits for the copy at most `timeout`. Errors: timed_out, invalid: as for
  // wait(); unsupported: CPUs reach the copy, so use wait(); else the copy's own error, or why
  // there is no copy.
  Result<std::uint64_t> wait_on_gpu(Nanoseconds timeout = std::chrono::seconds{60}) const;

  BlockState state() const;
  // Whether the copy was ready when access() was called. False for a copy that became ready since
  // then, and for a Block without a copy.
  bool hit() const { return hit_; }
  // Calls `then` when the copy is ready or has failed. If that is so already, or if there is no
  // copy, it is called at once in this thread. Otherwise the thread that ends the copy calls it
  // without a lock, as for Transfer::on_done(). `then` must not block, destroy the cache, or throw.
  // The Block may be destroyed before the call.
  void on_ready(std::function<void()> then) const;

  // co_await block: the result of wait() after the copy's end. Resumes as a callback of on_ready().
  bool await_ready() const { return state() != BlockState::filling; }
  void await_suspend(std::coroutine_handle<> waiter) const {
    on_ready([waiter] { waiter.resume(); });
  }
  Result<std::span<const std::byte>> await_resume() const { return wait(Nanoseconds{0}); }

  // The node of the copy if it is ready, else the node that now() reads. Nothing if there is
  // nothing to read.
  std::optional<NodeId> node() const;
  // The extent that was asked for. The copy may cover more.
  Extent extent() const { return extent_; }

 private:
  friend class CacheAccess;
  friend class CacheCore;
  friend class TenantPins;
  std::optional<std::span<const std::byte>> look() const;
  bool is_writable() const;
  void let_go() noexcept;
  Status wait_for_end(Nanoseconds timeout) const;
  enum class Writing : std::uint8_t { no, may, has };
  enum class Refusal : std::uint8_t {
    none,
    told,
    forked,
    invalid,
    foreign_plan,
    foreign_tenant,
    too_large,
    no_space,
    no_memory
  };

  // A hit. `bytes` is null if only a GPU reaches the copy.
  Block(CacheCore& cache, CacheEntry& entry, std::atomic<CacheEntry*>& slot, const Extent& extent,
        const std::byte* bytes)
      : cache_(&cache), entry_(&entry), slot_(&slot), bytes_(bytes), extent_(extent), hit_(true) {}

  CacheCore* cache_ = nullptr;
  CacheEntry* entry_ = nullptr;               // null: no copy, only the source
  std::atomic<CacheEntry*>* slot_ = nullptr;  // the slot that pins it; null: counted in the entry
  const std::byte* bytes_ = nullptr;          // known from the start; null: use look()
  Extent extent_;
  std::unique_ptr<Error> refused_;  // for Refusal::told
  mutable Nanoseconds waited_{0};   // so far, by wait() calls that timed out
  // Without an entry: the budget, and the cache's number, of the node that refused. With one: the
  // tenant that counts it among its pins (CacheTenant::most_pinned), 0: none; and its slot.
  std::uintptr_t budget_or_slot_ = 0;
  std::uint16_t node_or_tenant_ = 0;
  Refusal refusal_ = Refusal::none;  // why there is no entry
  bool missing_ = false;             // during its access
  bool hit_ = false;
  Writing writing_ = Writing::no;
};

// A user of a cache that shares its budgets with others (CacheOptions::tenants). A block belongs to
// the tenant whose access or plan brought it; a hit of another tenant is a hit.
struct CacheTenant {
  std::string name;
  // Share of each budget, 0 to 1, that no other tenant's access takes from its blocks.
  double least = 0;
  // Share of each budget, 0 to 1, that its blocks fill at most, pinned ones included. With 0 it has
  // no copies, and only reads those that other tenants made. At this limit a block of its own is
  // evicted, or its access is refused as without space. Pins end only with their Blocks: for a sure
  // `least`, `most` of each other tenant must leave it free.
  double most = 1;
  // Share of all budgets together, 0 to 1, that the extents of its Blocks have at most. Beyond it
  // an access gives a Block without a copy: exhausted.
  double most_pinned = 1;
  // When space is short, tenants of a lower class lose what they have beyond their `least` first.
  // One that asks loses its own blocks before those of a higher class: with least = 0 it may keep
  // few more than it holds. Its copies are queued in this class, or in that of the access if that
  // is lower; of those that wait, it gets every eighth piece (Priority).
  Priority priority = Priority::demand;
};

// A tenant of one cache: Cache::tenant(). TenantId{}: accesses that name none, to objects without a
// tenant (Cache::set_tenant). They share what is left, as a tenant without a name with least = 0
// and most = 1.
enum class TenantId : std::uint8_t {};

// The expected use of a copy that an access starts. A copy that exists already keeps its place.
enum class Keep : std::uint8_t {
  normal,
  longer,  // like a block that was used again soon: a scan does not evict it
  shorter  // evicted before all others of its tenant, unless it is used once more
};

std::string_view to_string(Keep keep);

struct AccessOptions {
  Priority priority = Priority::demand;
  // The node that reads the copy, for the placement policy. Default: the node of the calling CPU.
  std::optional<NodeId> initiator = {};
  // The plan that this access uses, from any of its threads. The handle must not move during the
  // call. Null: the access counts for each plan that no access ever named, if it lies near the
  // plan's uses (PrefetchOptions::window).
  const Prefetch* plan = nullptr;
  // How long to wait for space if all blocks are pinned or in flight. Then the access is refused.
  // The wait ends as soon as enough was released. In a callback of the Mover there is no wait.
  Nanoseconds space_timeout{0};
  // Take the block for writing (Block::wait_to_write). Extents of one call are taken one after the
  // other: take several in one order in all threads. Errors of the Block's wait: invalid: the cache
  // is not writable, or the extent overlaps a dirty block of another range; denied: a read-only
  // file; timed_out: see lock_timeout.
  bool write = false;
  Keep keep = Keep::normal;
  // The tenant that accesses; TenantId{}: the tenant of the object, if it has one. Errors of the
  // Block's wait: invalid: it is of another cache.
  TenantId tenant = {};
  // In a writable cache: how long access() waits for a Block that holds the bytes for writing, or,
  // with `write`, for any Block that holds them; and for write-backs that make space. In a callback
  // of the Mover there is no wait.
  Nanoseconds lock_timeout = std::chrono::seconds{60};
  // Called repeatedly during these waits, without a lock; true ends the wait. Null: not called.
  const std::function<bool()>* stop = nullptr;
};

struct ReadOptions {
  // Largest block, rounded down to a power of two; more than 0. Reads go through aligned blocks
  // from 64 KiB (or `block`, if that is less) up to this size. Reads share copies wherever they
  // begin; those of very different lengths may keep bytes in blocks of several sizes, which a
  // `block` of 64 KiB avoids. A read fetches at most 64 KiB more than it needs at each end, of a
  // UserSource whole chunks.
  Bytes block = 1_MiB;
  // For each block; more than 0.
  Nanoseconds timeout = std::chrono::seconds{60};
  // `stop` is called during each wait.
  AccessOptions access = {};
};

// Extents of `length` bytes: number i begins at offset + i * stride, for i from 0 to count - 1.
struct Strided {
  const Object* object = nullptr;
  std::uint64_t offset = 0;
  Bytes length;
  std::uint64_t stride = 0;  // in bytes; more than 0
  std::uint64_t count = 0;
};

struct PrefetchOptions {
  // How long before its use an extent should be ready. The plan keeps ahead of the last use the
  // bytes that are used in this time at the measured pace, and at least enough to cover the
  // measured copy latency.
  Nanoseconds lead = std::chrono::milliseconds{50};
  // Most bytes fetched ahead and not yet used; at most half of the node's budget, shared by the
  // plans.
  // - A plan whose consumer pauses (a second, and longer than usual) may lose its bytes to others.
  // - Neighbours may be fetched as one block of at most 1 MiB and a 64th of the budget. A Block of
  //   a part of it pins all of it. If its copy fails, all accesses that wait for it fail; a
  //   repeated one reads its own extent.
  // - Extents more than the window behind the furthest use are passed over: unprotected, and no
  //   longer fetched.
  // - An access without a plan more than the window ahead of the furthest use is no use of this
  //   plan, unless many accesses continue from there and none comes here.
  Bytes window = 64_MiB;
  std::optional<NodeId> initiator = {};
  // Only accesses that name the plan are uses of it, from the start. Otherwise this holds from the
  // first access that names it. Set this if earlier accesses by others read the same objects.
  bool named = false;
  // The tenant that owns the fetched blocks; TenantId{}: the tenant of each object, if it has one.
  // If it is of another cache, all extents are invalid.
  TenantId tenant = {};
};

// A running plan. Destroying the handle cancels it. The handle may outlive its Cache, but must not
// be used or destroyed while another thread destroys the Cache.
class Prefetch {
 public:
  Prefetch() = default;
  Prefetch(Prefetch&&) noexcept;
  Prefetch& operator=(Prefetch&&) noexcept;
  ~Prefetch();

  // Starts no more copies. Drops those that no engine has begun and nobody accessed, as far as
  // possible. Unused blocks lose their protection. Does not wait.
  void cancel();
  struct Progress {
    std::size_t planned = 0;
    std::size_t started = 0;  // copy started, or found in the cache
    std::size_t used = 0;     // accessed at least once since
    std::size_t invalid = 0;  // not inside their object, so never fetched
    bool cancelled = false;
  };
  Progress progress() const;

 private:
  friend class CacheCore;
  friend class CacheShards;
  friend class Prefetcher;
  // The part for each shard; null if a shard has none.
  std::vector<std::shared_ptr<PrefetchPlan>> plans_;
  const void* cache_ = nullptr;  // its CacheShards; null: no plan
};

// An event of a block, for timelines and tests. The extent's object may be destroyed when a block
// is dropped or fails: compare the pointer, do not dereference it.
struct CacheEvent {
  enum class Kind : std::uint8_t {
    fill_started,
    ready,
    failed,
    hit,
    inflight_hit,
    miss,
    evicted,
    invalidated,
    promoted,
    demoted
  };
  Kind kind;
  Extent extent;
  Nanoseconds time;
  bool by_prefetch = false;
};

std::string_view to_string(CacheEvent::Kind kind);

struct CacheOptions {
  // Bytes of copies per node, of the host or a GPU. A node without a budget gets no copies.
  std::vector<std::pair<NodeId, Bytes>> budgets;
  // Further memories with their budgets, the fastest first, below the one of `budgets`: the cache
  // is then a chain, such as HBM -> DRAM -> CXL, and a block is in one memory of it.
  // - A block that the first memory has no space for is demoted: copied to the next one. The last
  //   memory evicts.
  // - An access to a demoted block is a hit, read where it is, and promotes it. No access waits for
  //   a move: until it has ended the block is read at its old place.
  // - A miss is copied to the first memory that has a gap, and evicts from the last one.
  // - A block whose move fails stays, or is evicted if its space is needed.
  // - A memory that gives less than its budget is passed over (CacheStats::slab_failures).
  // - In a writable cache a changed block stays in its memory until it is written back.
  // Needs one budget, and nodes that CPUs address.
  std::vector<std::pair<NodeId, Bytes>> chain = {};
  // Asked with lengths rounded up to a power of two; its answers are remembered. A copy is made on
  // the first of the placement's nodes that has a budget. If that node has no space for an access,
  // the next node that the placement spills to is tried. Plans do not spill.
  PlacementPolicy placement = place::nearest_fast;
  // Replaces the Mover's route policy.
  std::optional<RoutePolicy> route = {};
  EvictionFactory eviction = s3_fifo;
  // Users that share the budgets, at most 31. Each has an eviction order of its own. Without space,
  // the tenant with the most bytes beyond its `least` loses a block. Errors of create(): invalid:
  // no name or the same one twice, a share outside 0 to 1, least above most, a sum of `least` above
  // 1. In a `chain` the shares hold in each memory, and a move keeps the tenant.
  std::vector<CacheTenant> tenants = {};
  // Least size of the slabs from which frames are cut. Slabs have at least a 1024th of the node's
  // budget, up to 1 GiB. They are allocated when first needed.
  Bytes slab = 32_MiB;
  PageSize pages = PageSize::transparent;
  // Allocates all slabs in create() and keeps them in flush() and clear(), so that no access pays
  // for the first touch of their pages.
  bool reserve = false;
  // Samples accesses for Cache::miss_ratio_curve(). It remembers 8192 extents, about 1 MiB. Each
  // access to one of them takes a lock.
  bool curve = false;
  // Returns an object with memory for a slab, of at least this many bytes, that the cache may write
  // to. For memory of another allocator, shared memory, or addresses without memory in a
  // simulation.
  // - It must be aligned to 4 KiB (memory of a GPU to 256 bytes). The cache drops the pointer when
  //   it releases the slab.
  // - Called without a lock, by the thread that needs the slab; must not call the cache.
  // - An error is handled as one of allocate().
  // - With `reserve`, free memory is not checked before.
  // Default: allocate() (buffer.h) with `pages`.
  std::function<Result<std::shared_ptr<const Object>>(NodeId node, Bytes bytes)> allocate = {};
  // Parts of the cache. Each has a lock, an eviction order and 1/N of every budget, so misses in
  // different shards do not wait for each other. A power of two up to 256. 0: one shard for each
  // two CPUs, rounded down to a power of two, at most 64, each with at least 256 MiB of every
  // budget; a single shard if there is an observer.
  //
  // With N shards:
  // - A block can be as large as a budget / N. So with 0 the largest block depends on the CPUs.
  // - An object is cut into stretches of a 64th of a shard's smallest budget, at most 1 MiB.
  //   Neighbouring stretches are in different shards.
  // - One shard is full before the others. So pins of more than about three quarters of a budget
  //   may be refused.
  // - Each shard fetches window / N of a plan ahead, and passes over what lies that far behind.
  // - Slabs are of `slab` / N, at least 2 MiB.
  std::size_t shards = 0;
  // Blocks can be written (AccessOptions::write). Needs budgets of nodes that CPUs address. With
  // several shards no extent may continue into another stretch. Plans fetch each extent alone.
  bool writable = false;
  // Called before each write-back with the extent and its new bytes, which do not change meanwhile:
  // for a log that must be on the device first. An error cancels the write-back as if it had
  // failed. Called without a lock by threads in access(), read(), write_back(), sync(), flush(),
  // clear(), resize(), forget() and the destructor, several at once for different blocks. Must not
  // call the cache and must not throw.
  std::function<Status(const Extent& extent, std::span<const std::byte> bytes)> before_write_back =
      {};
  // Called under a lock of a shard, so several threads may call it at once. It must be quick and
  // must not call the cache.
  std::function<void(const CacheEvent&)> observer = {};
};

struct WriteBackOptions {
  // Only blocks that overlap it. Nothing: all.
  std::optional<Extent> extent = {};
  Nanoseconds timeout = std::chrono::seconds{60};
  // Called repeatedly during the wait, without a lock; true ends the wait. Null: not called.
  const std::function<bool()>* stop = nullptr;
};

class Cache {
 public:
  // Borrows `mover` and its machine, which must outlive the cache. Errors: invalid: a budget for
  // storage, a budget of 0, no budget, two for one node, a number of shards that is no power of two
  // or too large for a budget, or before_write_back without `writable`.
  // With `reserve` also: exhausted: the budgets exceed the free memory, and nothing was allocated;
  // the errors of allocate().
  static Result<std::unique_ptr<Cache>> create(Mover& mover, CacheOptions options);
  // Cancels plans, writes dirty blocks back, and waits for copies in flight. A dirty block whose
  // write-back fails is lost, and stderr gets one line: call sync() before, which reports it.
  // Requires: all Blocks are destroyed.
  ~Cache();

  // A pin on the block of `extent`: ready, in flight, or started now. An extent inside a larger
  // block is read from that block. An extent that only overlaps blocks gets a copy of its own.
  //
  // If there is no copy (no space among pins, larger than the budget, no faster node), the Block is
  // absent: it reads the source, and for a file wait() returns the reason. For an invalid extent
  // or a plan of another cache, wait() returns that error. An empty extent is ready.
  //
  // A miss may allocate a slab, or wait at most 30 s for another thread that allocates one
  // (CacheOptions::reserve avoids both). The engine may do a small copy at once in this thread.
  Block access(const Extent& extent);
  Block access(const Extent& extent, const AccessOptions& options);
  // Like access() for each extent. Ready blocks are pinned without the lock; blocks in flight under
  // one lock for many; then misses follow one by one, submitted together. Requires: blocks.size()
  // == extents.size().
  void access(std::span<const Extent> extents, std::span<Block> blocks,
              const AccessOptions& options = {});

  // Copies the bytes of `from` to `to`, through blocks of the cache, and waits for them. Bytes for
  // which there is no copy (no space, a failed copy) come from the source.
  // Requires: to.size() == from.length, and `to` is no memory that the cache reads from.
  // Errors: invalid: an extent outside its object, other sizes, a callback of the Mover;
  // timed_out; cancelled: AccessOptions::stop returned true; the error of the source. After an
  // error `to` holds unspecified bytes, and nothing writes to it any more.
  Status read(const Extent& from, std::span<std::byte> to, const ReadOptions& options = {});

  // Plans the use of `extents` in this order and fetches them ahead. Each is protected from
  // eviction until its first use or until the plan is cancelled.
  Prefetch prefetch(std::span<const Extent> extents, const PrefetchOptions& options = {});
  // The same for extents at equal distances. They cost memory only near their use: about 2 MiB in
  // each shard, for any number of them. An access that names the plan and goes farther than the
  // window or 16 384 extents ahead skips the extents before it. Extents that do not lie in the
  // object count as invalid, and those after the first 2^63 bytes of the plan. All do without a
  // length or a stride; and in a writable cache with several shards, unless offset and stride are
  // multiples of a length that is a power of two, at most 1 MiB.
  Prefetch prefetch(const Strided& extents, const PrefetchOptions& options = {});

  // Drops all copies that overlap `extent`, also those in flight. An access that begins after the
  // return sees no bytes read before the call. Until then, accesses by overlapping extents may see
  // old and new bytes in turn. Blocks that are held keep their bytes. Requires: the source was
  // changed before the call.
  // False: blocks that are dirty or held for writing stay. They are newer than the source by the
  // cache's order; discard() drops them.
  bool invalidate(Extent extent);
  // Drops the copies that overlap `extent`, also dirty blocks: their changes are lost. Waits, at
  // most `timeout`, for Blocks that hold them for writing and for write-backs in flight. Errors:
  // timed_out: some are left; invalid: a callback of the Mover.
  Status discard(Extent extent, Nanoseconds timeout = std::chrono::seconds{60});
  // Writes the blocks that are dirty now to their sources, and waits for it. They stay cached.
  // Errors: that of the oldest block that failed, with the number of those; all of them stay dirty,
  // and the next call tries again. timed_out, cancelled: the rest goes on. invalid: a callback of
  // the Mover.
  Status write_back(const WriteBackOptions& options = {});
  // write_back(), then fdatasync() of each file that the cache has written since its last sync().
  // Waits at most `timeout` for another thread's fdatasync() of a file; the time of its own has no
  // bound. Errors: as for write_back(); io: fdatasync() failed. Then
  // the kernel may have dropped what it held of this file: sync() returns this error until forget()
  // of the file.
  Status sync(const WriteBackOptions& options = {});
  // Drops all copies of `object`, after writing dirty blocks back, and waits, at most `timeout`,
  // until no engine reads it. Then it may be destroyed, if no plan or access names it. A file is
  // not made durable: later calls of sync() leave it out. Errors:
  // timed_out: an engine still reads it, or a thread syncs it; invalid: a Block holds a part of it
  // for writing; those of write_back().
  Status forget(const Object& object, Nanoseconds timeout = std::chrono::seconds{60});
  // The objects that must live: copies in flight and plans read from them, or changes of them are
  // not yet written back or, for a file, not yet durable by sync().
  std::vector<ObjectId> reading() const;
  // Drops all copies that are not pinned and not protected by a plan. Like clear(), a writable
  // cache first calls write_back(); blocks that are dirty after that stay.
  void flush();
  // Drops all copies and cancels plans. Pinned copies live until their last Block is destroyed.
  void clear();
  // Changes a node's budget. It shrinks at once as far as pins allow, and evicts, also in a chain;
  // with CacheOptions::reserve, it allocates the growth at once. Errors: absent: the node has no
  // budget. With `reserve` also: exhausted: less is free, and nothing has changed; errors of
  // allocate(): the budget has changed.
  Status resize(NodeId node, Bytes budget);

  CacheStats stats() const;
  // Errors: absent: CacheOptions::tenants has no such name.
  Result<TenantId> tenant(std::string_view name) const;
  // From now on, accesses to `object` and plans of it that name no tenant are those of `tenant`.
  // TenantId{} ends this, and so does forget(). Copies that exist keep their tenant. Errors:
  // invalid: a tenant of another cache.
  Status set_tenant(const Object& object, TenantId tenant);
  // The miss ratio by the budget, from the smallest budget on, as if extents were blocks of LRU. A
  // larger budget than the last one would not help. Empty before the first extent was accessed
  // twice. Its mean error, compared with exact LRU, was at most 0.005 where 8192 of 20 000 extents
  // were sampled (docs/howto/shared-cache.md). Errors: invalid: without CacheOptions::curve.
  Result<std::vector<CacheCurvePoint>> miss_ratio_curve() const;
  // Why an extent is or is not cached, and whether a copy pays: headrace/cache/explain.h.
  Result<CacheExplanation> explain(const Extent& extent,
                                   std::optional<NodeId> initiator = {}) const;

 private:
  explicit Cache(std::unique_ptr<CacheShards> shards);
  std::unique_ptr<CacheShards> shards_;
  CacheCore* only_ = nullptr;  // the only shard; null: there are several, or tenants
};

}  // namespace HEADRACE_API headrace
