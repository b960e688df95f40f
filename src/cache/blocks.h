// SPDX-License-Identifier: Apache-2.0
// The lock of a shard, the parts that it guards, and the life of its blocks.
//
// One lock guards everything but hits, waiting and the bytes. The state of a block is an atomic
// word, so wait() and now() of a Block take no lock. A ready block is pinned and released without
// it (readers.h).
//
// Guarded parts, each with its own data: Hits (index and pins), Space (memory), Candidates (the
// order of eviction), Prefetcher (plans), Blocks (life). They call each other and never take the
// lock. Classes that take it: CacheAccess (access.cpp), Fills (copies in flight), Slabs and Pump
// (core.h), CacheCore (the rest).
//
// Never done under the lock, since each may take long or call back: submit a copy, allocate or free
// a slab, ask a policy, cancel a transfer, wake a thread. Deferred keeps such work until the lock
// is released.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cache/accounts/owners.h"
#include "cache/candidates.h"
#include "cache/chain.h"
#include "cache/prefetch.h"
#include "cache/space.h"
#include "cache/structures/destinations.h"
#include "cache/structures/entry.h"
#include "cache/structures/hits.h"
#include "core/fork.h"
#include "core/intrusive_list.h"
#include "core/mutex.h"
#include "headrace/cache.h"
#include "headrace/file.h"

namespace headrace {

// Work for after the release of the lock.
class Deferred {
 public:
  bool empty() const { return !any_; }
  // Whether it needs the cache, or calls code that may need it.
  bool needs_cache() const {
    return awaited != nullptr || wake_ || !slabs.empty() || !thens.empty();
  }
  // Wakes the threads that sleep on the word, before anything else.
  void wake(const std::atomic<std::uint32_t>& word) {
    any_ = true;
    awaited = &word;
  }
  void wake_for_space() { any_ = wake_ = true; }
  void promote(const Transfer& transfer, Priority priority) {
    promoted.emplace_back(transfer, priority);
    any_ = true;
  }
  // Without memory only the first is cancelled; the others end by themselves.
  void cancel(const Transfer& transfer);
  void forget(Transfer transfer) {
    any_ = true;
    ended = std::move(transfer);
  }
  void call(std::vector<std::function<void()>> all) {
    any_ = true;
    thens = std::move(all);
  }
  // Reserves memory for one more slab, so that free() cannot fail.
  void may_free();
  void free(std::shared_ptr<const Object> slab) {
    any_ = true;
    slabs.push_back(std::move(slab));
  }

 private:
  friend class Locked;
  const std::atomic<std::uint32_t>* awaited = nullptr;
  bool any_ = false;
  bool wake_ = false;  // threads that wait for space
  std::vector<std::pair<Transfer, Priority>> promoted;
  std::optional<Transfer> first_cancelled;
  std::vector<Transfer> more_cancelled;
  std::vector<std::shared_ptr<const Object>> slabs;
  std::vector<std::function<void()>> thens;
  Transfer ended;
};

// Words that threads read without the lock. They change under it; pump_due is also cleared without.
struct Signals {
  // A plan waits for a slab, which only a user's thread may allocate. Read by hits, seldom written.
  std::atomic<bool> growth_due{false};
  // An item of a plan may be startable. Not read by hits.
  alignas(64) std::atomic<bool> pump_due{false};
  // Changes when a slab was added, refused or released; and, while a thread waits for space, when a
  // block was released.
  std::atomic<std::uint32_t> space_changes{0};
  // Copies whose end is not completely handled. The destructor waits for 0.
  std::atomic<std::uint32_t> running{0};
  // Copies that have ended. A thread that waits for one of them sleeps on it, since `running` is
  // the same again if another copy has started meanwhile.
  std::atomic<std::uint32_t> ends{0};
  std::atomic<std::uint64_t> started{0};  // copies so far
  std::atomic<bool> clean_due{false};     // a write-back is to be started
  std::atomic<bool> moves_due{false};     // a move of a chain is to be started

  bool take_pump_due() { return pump_due.load() && pump_due.exchange(false); }
};

// The parts of a shard, for each other.
struct Shard {
  Mover& mover;
  const CacheOptions& options;
  Accounts& accounts;
  const std::size_t number;
  const std::size_t shards;  // of the cache
  Signals& signals;
  Hits& hits;
  Deferred& deferred;
  Space& space;
  Candidates& candidates;
  Prefetcher& plans;
  Blocks& blocks;
  Chain& chain;
};

// The files of blocks that were held for writing. Guarded by the shard's lock.
class WrittenFiles {
 public:
  // Remembers the file of a block to be written. Throws bad_alloc.
  void note(const File& file);
  // Bytes were written back to the object, if it is a file.
  void wrote(ObjectId object);
  // Calls take() for each file that was written since the last call. If it throws, the next call
  // takes the file.
  void take_unsynced(const std::function<void(const File&)>& take);
  void forget(ObjectId object);
  void add_unsynced(std::vector<ObjectId>& objects) const;

 private:
  struct Written {
    const File* file = nullptr;
    ObjectId id{};
    bool unsynced = false;
  };
  std::vector<Written> written_;
};

// From the start of a block's copy to the end of its entry. Guarded by the shard's lock.
class Blocks {
 public:
  explicit Blocks(const Shard& shard) : shard_(shard) {}

  // A new entry, with everything that start() needs, so that start() cannot fail.
  CacheEntry& take(CacheEntry* taken);
  void give_unused(CacheEntry& entry);
  // Puts a new block into the index before its copy is submitted, so that other accesses find it.
  // If too many blocks overlap each other (RangeIndex::kMostInCell), one of them is dropped; if
  // that is not possible, the new block stays out of the index. Cannot fail.
  void start(CacheEntry& entry, const SpaceRequest& request);
  bool may_enter_index(const Range& range);
  // From here on to dirty(): defined in writes.cpp.
  //
  // What an access for writing may do now. absent: a new block for the extent may be started.
  // refused: it overlaps a block of another range that is dirty or held for writing, or too many
  // that are in use.
  enum class Turn : std::uint8_t { granted, absent, wait, refused };
  // Gives a thread all of a block, without pins and copies beside it; `granted` is then pinned.
  // Throws bad_alloc, and then has changed nothing.
  Turn enter_write(const Range& range, CacheEntry*& granted);
  // The thread waits no longer.
  void leave_write(const Range& range);
  // The Block that held it for writing is released. `wrote`: it may have changed the bytes.
  void end_write(CacheEntry& entry, bool wrote);
  // Whether an access may read `found`, which covers the range (granted), or start a copy (null:
  // absent). Otherwise the blocks in its way go back to their source. refused: one of them could
  // not, see `why`. `polite`: writers that wait go first.
  Turn may_read(const Range& range, const CacheEntry* found, bool polite, const Error*& why);
  // Whether a block of the range may be started: none overlaps it that is newer than its source.
  bool may_start(const Range& range) const;
  // The next change that these wait for wakes the threads that wait for Signals::space_changes.
  void await() { awaited_ = true; }

  // An access uses the block: counts it, tells plans and the order. True: the block is ready.
  bool use(CacheEntry& entry, const Extent& extent, const AccessOptions& options);
  // After an access to a ready block: the next access needs no lock, unless a plan watches the
  // block. A node beyond its budget needs the last release of each block under the lock.
  void open(CacheEntry& entry);
  // Releases a counted pin.
  void unpin(CacheEntry& entry);
  // The copy has ended. `why`: the error; null: success.
  void end_copy(CacheEntry& entry, const Error* why, Nanoseconds took);
  // Removes a block from the index. Its bytes stay while a Block holds it or an engine writes to
  // it.
  void drop(CacheEntry& entry, CacheEvent::Kind why);
  // Sets where the bytes of a new block go.
  void describe(CacheEntry& entry);
  // A move has copied the block to `to`, which takes its place. Requires: its pins are counted, and
  // the move holds one of them.
  void replace(CacheEntry& from, CacheEntry& to);
  void emit(CacheEvent::Kind kind, const Extent& extent, bool by_prefetch) noexcept;

  bool being_read(ObjectId object) const;

  // Write-backs. Dirty blocks go back in the order in which they became dirty, each of them at most
  // once at a time. A block whose write-back failed waits for write_back() of the cache, or for a
  // pause if its space is needed.
  // `for_space`: it may be evicted next.
  void make_due(CacheEntry& entry, bool for_space = false);
  // Makes the oldest dirty blocks of a node due, at most kBatch; after a pause also those that
  // failed. False: no write-back of the node will end, unless a Block is released.
  bool clean_some(std::uint16_t node);
  // Makes the dirty blocks due that overlap the range (null: all), also those that failed before.
  // Returns the number of the last change so far.
  std::uint64_t clean(const Range* range);
  // Takes blocks that are due: their write-backs are in flight from now on.
  std::size_t take_due(std::span<Fill*> out);
  // The write-back has ended. `why`: the error; null: success.
  void end_clean(CacheEntry& entry, const Error* why);
  // Counts the blocks that overlap the range (null: all) and became dirty until `last`.
  struct Dirty {
    std::size_t waiting = 0;  // due, or in flight
    std::size_t held = 0;     // due, but held for writing
    std::size_t failed = 0;
    const Error* error = nullptr;  // of the oldest that failed
  };
  Dirty dirty(const Range* range, std::uint64_t last) const;
  // A dirty block, the oldest of those that failed or of all; null: none.
  const CacheEntry* oldest_dirty() const;
  // Drops the dirty blocks that overlap the range (null: all) without a write-back. False: some are
  // held for writing or being written back; they stay.
  bool discard(const Range* range);
  // The objects that copies in flight read, that changed blocks will be written to, and the files
  // among them that sync() has not taken.
  std::vector<ObjectId> reading() const;
  const CacheEntry* any_pinned() const { return entries_.any_pinned(); }

  // Without the hits that took no lock, and without what the cache has now.
  CacheStats counts;
  WrittenFiles files;
  Nanoseconds latency{0};  // of copies, a decaying mean

 private:
  static constexpr std::size_t kBatch = 32;
  // A quarter of each budget is clean, so that misses find victims without a write-back.
  static constexpr std::uint64_t kCleanShare = 4;
  // Pauses before failed write-backs are tried again for their space, doubling.
  static constexpr Nanoseconds kFirstRetry = std::chrono::milliseconds{100};
  static constexpr Nanoseconds kLongestRetry = std::chrono::seconds{10};

  void leave_index(CacheEntry& entry, bool evicted);
  bool copies_overlap(const Range& range) const;
  void drop_others(const Range& range, const CacheEntry* own);
  void enlist(Fill& fill);
  void forgive(Fill& fill);
  void changed();
  void promote(Fill& fill, Priority priority);
  void fail(CacheEntry& entry, const Error& error);
  void abandon(CacheEntry& entry);
  void reap(CacheEntry& entry);

  const Shard& shard_;
  EntryPool entries_;
  using FillList = IntrusiveList<Fill, &Fill::next, &Fill::previous>;
  FillList fills_;    // copies in flight
  FillList dirty_;    // of dirty blocks, the oldest first; the others are in one of the next three
  FillList due_;      // to be written back
  FillList writing_;  // write-backs in flight
  FillList failed_;   // of those whose last write-back failed, the oldest first
  // When these may be tried again for their space, and how long to wait after the next failure.
  Nanoseconds retry_at_{0};
  Nanoseconds retry_after_ = kFirstRetry;
  std::uint64_t changes_ = 0;
  bool awaited_ = false;
};

// The lock, and everything that it guards.
struct ShardState {
  // Shard number `number` of `shards`. options.budgets are its own.
  ShardState(Mover& mover, CacheOptions options, Accounts& accounts, std::size_t number,
             std::size_t shards);

  // Immutable after construction.
  const Origin origin;
  Mover& mover;
  const CacheOptions options;
  const Destinations destinations;
  const Shard parts;

  Signals signals;
  Hits hits;  // Thread-safe where its functions say so
  alignas(64) mutable Mutex mutex;
  Deferred deferred GUARDED_BY(mutex);
  Space space GUARDED_BY(mutex);
  Candidates candidates GUARDED_BY(mutex);
  Prefetcher plans GUARDED_BY(mutex);
  Blocks blocks GUARDED_BY(mutex);
  Chain chain GUARDED_BY(mutex);
};

// Holds the lock for a scope. Does the deferred work after its release.
class SCOPED_CAPABILITY Locked {
 public:
  explicit Locked(ShardState& state) ACQUIRE(state.mutex) : state_(state) { state.mutex.lock(); }
  ~Locked() RELEASE() NO_THREAD_SAFETY_ANALYSIS {
    if (state_.deferred.empty()) {
      state_.mutex.unlock();
    } else {
      release_and_act();
    }
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  void release_and_act() NO_THREAD_SAFETY_ANALYSIS;

  ShardState& state_;
};

}  // namespace headrace
