// SPDX-License-Identifier: Apache-2.0
// The table of a KV store: which block has a copy in which slot of which tier.
//
// The states of a copy:
//   filling -> ready -> leaving -> none        leaving: being copied to another tier, still served
//                  \--> damaged -> none        damaged, or removed: no longer served, released with
//                                              the last pin
// Ready copies are in their tier's order of eviction. Copies that are leaving but will stay
// (flush(), promotion) are in it too. A block that is pinned or has a copy in state filling loses
// no copy.
//
// One lock guards the table. Under it no copy is started or waited for, and no end is reported (see
// Later). Its users are the table and the parts of the store that decide about slots: Tiers,
// Arrivals, Remover and Flusher.
//
// The order of locks in a KV store. A thread that holds one takes only locks below it:
//   1. the table: TableLock
//   2. which loads follow others: Coalescer
//   3. the jobs: JobQueue; the end of one operation: Ending
// Held alone: LoadQueue, Loads, StreamWaiter, and LoadState::sharing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "headrace/buffer.h"
#include "headrace/kvcache/store.h"
#include "kvcache/shared/index.h"
#include "kvcache/state/epochs.h"
#include "kvcache/state/folders.h"
#include "kvcache/state/free_slots.h"

namespace headrace::kvcache {

struct Entry;
struct LoadItem;

// The capability of who holds the lock of the table. All stores share it, since the compiler does
// not see that the parts of a store refer to one table. No function uses two stores.
class CAPABILITY("mutex") TableCapability {};
inline constexpr TableCapability kTable;

// How long a full disk, or a tier to which a copy failed, is not tried again.
inline constexpr Nanoseconds kRest = std::chrono::seconds{10};
// Short enough to be copied without an allocation.
inline const Error kNoMemory{ErrorCode::exhausted, "out of memory"};

inline constexpr std::uint32_t kNoSlot = UINT32_MAX;

struct Copy : EvictionLinks {
  enum class State : std::uint8_t { none, filling, ready, leaving, damaged };
  Entry* entry = nullptr;
  std::uint32_t slot = 0;  // the first; constant while the copy is filling or pinned
  State state = State::none;
  std::uint8_t side = 0;  // of Tier::fills, while the copy is filling

  bool served() const { return state == State::ready || state == State::leaving; }
};

// The copies of a block, by tier. As many as the store has tiers, to save memory: a folder may have
// 10^7 blocks.
class Copies {
 public:
  explicit Copies(std::size_t tiers)
      : copies_(std::make_unique<Copy[]>(tiers)), size_(static_cast<unsigned>(tiers)) {}
  unsigned size() const { return size_; }
  Copy& operator[](std::size_t tier) { return copies_[tier]; }
  const Copy& operator[](std::size_t tier) const { return copies_[tier]; }
  const Copy* begin() const { return copies_.get(); }
  const Copy* end() const { return copies_.get() + size_; }

 private:
  std::unique_ptr<Copy[]> copies_;
  unsigned size_;
};

// A block that has a copy, or waits for a slot. Guarded by the table's lock, except the key.
struct Entry {
  Entry(const Key& of, std::uint64_t size, std::size_t tiers)
      : key(of), bytes(static_cast<std::uint32_t>(size)), copies(tiers) {}

  const Key key;
  const std::uint32_t bytes;
  unsigned pins = 0;     // by matches and loads
  bool waiting = false;  // for a slot of the first tier
  bool storing = false;  // waiting, or being copied from the user's memory
  // remove() was called: no copy is served, and each is released as soon as possible.
  bool removed = false;
  bool refused = false;         // the disk did not take a write of flush(), and another disk may
  bool torn = false;            // the damaged copy in the folder is not what was written
  LoadItem* readers = nullptr;  // loads that read a part of it from the folder; the latest first
  // The number of its last use, counted over all blocks: stored, stored again or loaded. 0: no use.
  std::uint64_t used = 0;
  Copies copies;

  std::optional<unsigned> fastest() const;
  // Whether it is on its way to the last tier.
  bool on_its_way() const { return copies[copies.size() - 1].state == Copy::State::filling; }
  bool has(Copy::State state) const;  // whether a copy is in this state
  // Whether another tier serves the block too.
  bool elsewhere(const Copy& copy) const;
};

// The state of the disk of one folder.
struct Disk {
  enum class State : std::uint8_t {
    open,
    full,    // slots never written are set aside: one of them got no space
    closed,  // all its free slots are: a written slot got no space, or a write failed
  };
  State state = State::open;
  bool failed = false;                  // closed since a write failed, with space left
  Nanoseconds again{0};                 // when one slot is tried; its success opens the disk
  std::optional<std::uint32_t> trying;  // that slot
};

// The state of a tier's disks. A written slot has space on its disk; others may not.
struct DiskSpace {
  std::vector<bool> written;           // by slot
  std::vector<Disk> disks;             // by folder
  std::optional<Nanoseconds> refused;  // the first write that failed since one succeeded
};

struct Tier {
  // Constant until the store is closed.
  std::shared_ptr<const Object> buffer;  // either this or the folder
  std::unique_ptr<Folders> folder;
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t unit = 0;  // the bytes of a block in one slot, at most

  TierStats counts GUARDED_BY(kTable);
  // Slots that a disk does not take are set aside.
  FreeSlots free GUARDED_BY(kTable);
  // If blocks have any size: the slot that follows in the same block. Constant while the slot is
  // taken, so its owner needs no lock.
  std::vector<std::uint32_t> next;
  std::uint32_t copies GUARDED_BY(kTable) = 0;
  DiskSpace disk GUARDED_BY(kTable);  // used for a folder
  // A copy to this tier failed whose source could stay. Until then, only blocks that must leave
  // their tier come here.
  Nanoseconds rests GUARDED_BY(kTable){0};
  std::size_t stuck GUARDED_BY(kTable) = 0;  // slots without a block that wait for their headers
  std::unique_ptr<EvictionOrder> order GUARDED_BY(kTable);
  // Slots of copies to this tier that have not ended, and of headers that are overwritten.
  unsigned filling GUARDED_BY(kTable) = 0;
  // The ones whose headers could not be overwritten before, and perhaps never will be.
  unsigned unlisting GUARDED_BY(kTable) = 0;
  Epochs fills GUARDED_BY(kTable);             // the same
  std::size_t leaving GUARDED_BY(kTable) = 0;  // slots
  std::size_t writing GUARDED_BY(kTable) = 0;  // slots that are written to the folder, and stay

  // The extent of `bytes` bytes at offset `from` within the slot.
  Extent in_slot(std::uint32_t slot, std::uint64_t from, Bytes bytes) const {
    if (folder != nullptr) return folder->in_slot(slot, from, bytes);
    return {buffer.get(), slot * slot_bytes + from, bytes};
  }

  std::uint32_t next_of(std::uint32_t slot) const { return next.empty() ? kNoSlot : next[slot]; }
  // Calls `use(slot, at, bytes)` for the slots of a block, with the offset in the block.
  template <class Use>
  void each_part(std::uint32_t first, std::uint64_t block_bytes, const Use& use) const {
    std::uint64_t at = 0;
    for (std::uint32_t slot = first; slot != kNoSlot; slot = next_of(slot)) {
      const std::uint64_t bytes = std::min(unit, block_bytes - at);
      use(slot, at, Bytes{bytes});
      at += bytes;
    }
  }

  // Returns the first of `count` slots for a block, all of one disk: free ones, or slots to try
  // again.
  std::optional<std::uint32_t> take_free(std::size_t count, Nanoseconds now) REQUIRES(kTable);
  // The same, without trying a disk.
  std::optional<std::uint32_t> take_usable(std::size_t count) REQUIRES(kTable);
  // Whether take_free() returns slots now, except those of full disks.
  bool has_free(std::size_t count, Nanoseconds now) const REQUIRES(kTable);
  // How many slots a block may have.
  std::size_t largest() const;
  void free_slot(std::uint32_t slot) REQUIRES(kTable);
  // Undoes take_free().
  void give_back(std::uint32_t first) REQUIRES(kTable);
  // The disk did not take what was written to these slots. Returns whether the next slots may be
  // taken: the disk takes no more for a while, and not all disks are closed.
  bool disk_refused(std::uint32_t first, const Error& why, Nanoseconds now) REQUIRES(kTable);
  // The disk had space for these slots. If they were tried again, their disk is open.
  void disk_has(std::uint32_t first) REQUIRES(kTable);
  // All slots that got no space may be tried again. Disks that failed stay closed.
  void reopen_disks() REQUIRES(kTable);
  // Whether the block in the slot may be evicted for one of `count` slots: its disk has as many,
  // and takes writes or is due to be tried.
  bool may_evict(std::uint32_t slot, std::size_t count, Nanoseconds now) const REQUIRES(kTable);
  // Whether no disk takes writes.
  bool all_closed(Nanoseconds now) const REQUIRES(kTable);
  // Whether some disk is full or closed.
  bool any_refuses() const REQUIRES(kTable);

 private:
  // Sets the free slots of the disk aside that it does not take, and no others.
  void sort_free(unsigned number) REQUIRES(kTable);
  bool refused(std::uint32_t slot) const REQUIRES(kTable);
  // Takes slots of a disk in this state whose slots are to be tried again.
  std::optional<std::uint32_t> try_again(Disk::State state, std::size_t count, Nanoseconds now)
      REQUIRES(kTable);
  // Takes `count` slots of the disk. Requires: it has them.
  std::uint32_t take(unsigned number, std::size_t count, bool aside) REQUIRES(kTable);
};

// The view that other processes have of a store that is opened with StoreOptions::shared.
class Sharing {
 public:
  // Memory of the first tier, which they can map.
  Result<std::unique_ptr<Buffer>> allocate(const Machine& machine, Bytes bytes,
                                           const Placement& memory);
  // From now on blocks are shown. `sizes`: without the slots if the first tier is a folder.
  Status open(SharedSizes sizes, const Tier& first);
  // They find the block as it is now. Called after each change of what is served, before a slot is
  // free.
  void show(const Entry& entry) REQUIRES(kTable);
  // They find nothing from now on.
  void close();
  // Constant once the store is open. See Store::shared().
  std::optional<SharedFiles> files() const;

 private:
  OwnDescriptor memory_;
  std::unique_ptr<SharedIndex> index_;  // nullptr: blocks are not shown
};

// Overwrites headers of the folder (Remover).
class Unlister {
 public:
  struct Slot {
    std::uint32_t number = 0;
    bool failed = false;    // a block was not written or is damaged, and has been counted
    bool retried = false;   // its header could not be overwritten before
    std::uint8_t side = 0;  // of Tier::fills, which counts the slot
  };
  // Frees the slot of the folder once its header is overwritten.
  virtual void unlist(Slot slot) noexcept REQUIRES(kTable) = 0;

 protected:
  ~Unlister() = default;
};

// As StoreOptions::allocate, by default too.
Result<std::shared_ptr<const Object>> allocate(const Machine& machine, const StoreOptions& options,
                                               const Placement& memory, Bytes bytes);

class BlockTable {
 public:
  BlockTable(Mover& mover, const StoreOptions& options, Unlister& unlister);
  Status open();
  // Unpins what matches hold, which then pin nothing.
  void release_matches();
  // Releases the tiers: nothing accesses them any more.
  void release();

  // Bytes of a block, or if blocks have any size, of one in a slot.
  std::uint64_t block_bytes() const { return block_bytes_; }
  std::size_t slots_of(std::uint64_t bytes) const {
    return any_size_ ? (bytes + block_bytes_ - 1) / block_bytes_ : 1;
  }
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  // The first tier that CPUs address.
  std::optional<unsigned> for_cpus() const { return for_cpus_; }
  std::size_t tiers() const { return tiers_.size(); }
  Tier& tier(unsigned index) { return tiers_[index]; }
  const Tier& tier(unsigned index) const { return tiers_[index]; }
  Tier& last() { return tiers_.back(); }  // the folder, if there is one
  bool has_folder() const { return tiers_.back().folder != nullptr; }

  using Entries = std::unordered_map<Key, Entry, std::size_t (*)(const Key&)>;
  Entries& entries() REQUIRES(kTable) { return entries_; }
  // The entry of the block, which is made if there is none.
  Entry& make(const Key& key, std::uint64_t bytes) REQUIRES(kTable) {
    return entries_.try_emplace(key, key, bytes, tiers_.size()).first->second;
  }
  // Returns nullptr if there is no such block.
  Entry* find(const Key& key) REQUIRES(kTable);
  StoreStats& counts() REQUIRES(kTable) { return counts_; }
  StoreStats stats();

  // Pins the leading blocks that are there: returns them, each with its fastest tier.
  // `all`: also those behind missing ones.
  void match(std::span<const Key> keys, bool all, std::vector<Key>& found,
             std::vector<unsigned>& tiers);
  // Undoes a match().
  void unmatch(std::span<const Key> keys) REQUIRES(kTable);
  std::vector<std::optional<Bytes>> sizes(std::span<const Key> keys);
  void touch(std::span<const Key> keys);
  // As that of Store.
  std::vector<Key> take_dropped();

  void pin(Entry& entry) REQUIRES(kTable);
  void unpin(Entry& entry) REQUIRES(kTable);
  bool pins_any() REQUIRES(kTable) { return pinned_ > 0; }
  // Counts a use. Returns how many uses of blocks there were since the block's last use, including
  // this one; empty for the first use.
  std::optional<std::uint64_t> use(Entry& entry) REQUIRES(kTable);
  // Counts a use by a store() or touch(), unless the block was removed.
  void use_again(Entry& entry) REQUIRES(kTable);
  bool in_memory(const Entry& entry) const REQUIRES(kTable);
  // Whether the folder does not have the block, though it may be on its way there.
  bool only_in_memory(const Entry& entry) const REQUIRES(kTable);

  void fill(Copy& copy, Entry& entry, unsigned tier, std::uint32_t slot) REQUIRES(kTable);
  void enter_order(Copy& copy, unsigned tier) REQUIRES(kTable);
  void ready(Copy& copy, unsigned tier) REQUIRES(kTable);
  // A read found that the copy is lost. `torn`: its bytes are not those that were written, so the
  // next process must not find it.
  void damage(Copy& copy, unsigned tier, bool torn) REQUIRES(kTable);
  // Stops serving a ready copy of a removed block.
  void withdraw(Copy& copy, unsigned tier) REQUIRES(kTable);
  // Frees the slots, and the entry with its last copy. `half`: the block or its header may have
  // been written, but not both.
  void drop(Copy& copy, unsigned tier, bool half = false) REQUIRES(kTable);
  // Keeps the error for stats().
  void note(const Error& error) noexcept REQUIRES(kTable);

  Sharing sharing;

  // The steps of close(), in order. No new operation is accepted.
  bool closing GUARDED_BY(kTable) = false;
  // Blocks pinned by matches may be released.
  bool matches_hold_nothing GUARDED_BY(kTable) = false;
  // No job is left: the store is closed.
  bool released GUARDED_BY(kTable) = false;

 private:
  friend class TableLock;
  Status open_tier(unsigned index);
  void list_dropped(const Key& key) noexcept REQUIRES(kTable);
  // Sets `taken` for the slots of its blocks.
  void take_over_found(unsigned index, std::vector<bool>& taken) REQUIRES(kTable);

  Mover& mover_;
  const StoreOptions& options_;
  Unlister& unlister_;
  const std::uint64_t block_bytes_;
  const std::uint64_t slot_bytes_;
  const bool any_size_;
  std::optional<unsigned> for_cpus_;  // constant after open()
  std::vector<Tier> tiers_;           // their number is constant

  Mutex mutex_;
  Entries entries_ GUARDED_BY(kTable);
  std::uint64_t pinned_ GUARDED_BY(kTable) = 0;  // bytes
  std::uint64_t uses_ GUARDED_BY(kTable) = 0;    // uses of blocks
  StoreStats counts_ GUARDED_BY(kTable);
  std::vector<Key> dropped_ GUARDED_BY(kTable);
  Nanoseconds last_error_at_ GUARDED_BY(kTable){0};
};

// Holds the lock of the table for a scope.
class SCOPED_CAPABILITY TableLock {
 public:
  explicit TableLock(BlockTable& table) ACQUIRE(kTable) NO_THREAD_SAFETY_ANALYSIS
      : mutex_(table.mutex_) {
    mutex_.lock();
  }
  ~TableLock() RELEASE() NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace headrace::kvcache
