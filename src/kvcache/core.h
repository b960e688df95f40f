// SPDX-License-Identifier: Apache-2.0
// The shared core of Store, Match, Load and Stored.
//
// One lock guards the tables: which block has a copy in which slot of which tier. Under this lock
// no copy is started or waited for, and no end is reported (see Later). The states of a copy:
//   filling -> ready -> leaving -> none        leaving: being copied to another tier, still served
//                  \--> damaged -> none        damaged, or removed: no longer served, released with
//                                              the last pin
// Ready copies are in their tier's order of eviction. Copies that are leaving but will stay
// (flush(), promotion) are in it too. A block that is pinned or has a copy in state filling loses
// no copy.
//
// CPUs compute checksums. Bytes between a folder and memory that CPUs do not address pass through
// memory that they address: a slot of the first such tier, or memory allocated for the operation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cuda/cuda.h"
#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/buffer.h"
#include "headrace/kvcache/store.h"
#include "kvcache/folder.h"
#include "kvcache/operations.h"

namespace headrace::kvcache {

inline constexpr const char* kTheStore = "the KV store";
// Longer timeouts are shortened to this, so that sums of times do not overflow.
inline constexpr Nanoseconds kLongestWait = std::chrono::years{1};
// How long a full disk, or a tier to which a copy failed, is not tried again.
inline constexpr Nanoseconds kRest = std::chrono::seconds{10};
// How many times a load starts and follows other loads for missing bytes; then it reads them
// itself.
inline constexpr unsigned kMostRounds = 2;
// The interval at which flush() and close() call `stop`.
inline constexpr Nanoseconds kAskToStop = std::chrono::milliseconds{50};
using Stop = std::function<bool()>;  // may be empty: never
// Short enough to be copied without an allocation.
inline const Error kNoMemory{ErrorCode::exhausted, "out of memory"};

struct Entry;

struct Copy : EvictionLinks {
  enum class State : std::uint8_t { none, filling, ready, leaving, damaged };
  Entry* entry = nullptr;
  std::uint32_t slot = 0;
  State state = State::none;

  bool served() const { return state == State::ready || state == State::leaving; }
};

// A block that has a copy, or waits for a slot.
struct Entry {
  Key key;
  unsigned pins = 0;     // by matches and loads
  bool waiting = false;  // for a slot of the first tier
  // remove() was called: no copy is served, and each is released as soon as possible.
  bool removed = false;
  LoadItem* readers = nullptr;  // loads that read a part of it from the folder; the latest first
  // The number of its last use, counted over all blocks: stored, stored again or loaded. 0: no use.
  std::uint64_t used = 0;
  std::array<Copy, kMostTiers> copies;

  std::optional<unsigned> fastest() const;
};

// The state of a folder's slots on a full disk. A written slot has space on the disk; others may
// not.
struct DiskRoom {
  std::vector<bool> written;        // by slot
  std::vector<std::uint32_t> none;  // free slots set aside: the disk has no space for them
  // A slot not written before got no space, and no such slot has been written since.
  bool full = false;
  std::optional<std::uint32_t> trying;  // a slot of `none` that is being tried again
  Nanoseconds again{0};                 // when the next slot is tried
  Nanoseconds closed{0};                // no writes before this time: a written slot got no space
};

struct Tier {
  TierStats counts;
  std::unique_ptr<Buffer> buffer;  // either this or the folder
  std::unique_ptr<Folder> folder;
  std::uint32_t slots = 0;
  std::vector<std::uint32_t> free;
  DiskRoom disk;  // used for a folder
  // A copy to this tier failed whose source could stay. Until then, only blocks that must leave
  // their tier come here.
  Nanoseconds rests{0};
  std::unique_ptr<EvictionOrder> order;
  unsigned filling = 0;
  unsigned leaving = 0;

  const Object& object() const {
    return folder != nullptr ? static_cast<const Object&>(folder->file()) : *buffer;
  }
};

struct Transit;

class StoreCore {
 public:
  static Result<std::unique_ptr<StoreCore>> open(Mover& mover, StoreOptions options);
  ~StoreCore();

  // Cancels and refuses operations, waits for copies in flight, and releases the tiers; matches
  // then pin nothing. After a timeout or a stop the next call continues.
  Status close(Nanoseconds timeout, const Stop& stop);
  bool closed() const { return giving_up_.load(); }
  // Errors: cancelled: the store is closed or closing.
  Status check_open() const;
  bool of_worker() const { return std::this_thread::get_id() == worker_id_; }

  const Geometry& geometry() const { return options_.geometry; }
  const Origin& origin() const { return origin_; }
  Mover& mover() { return mover_; }

  // matching.cpp
  Match match(std::span<const Key> keys);
  void let_go(const Match& match);

  // removing.cpp
  std::vector<bool> contains(std::span<const Key> keys) const;
  Result<std::size_t> remove(std::span<const Key> keys);
  Result<std::size_t> clear();
  // Processes the next headers to be overwritten. Returns false if there are none.
  bool next_unlisted() noexcept;
  void unlisted(const Error* why) noexcept;

  // storing.cpp
  Result<Stored> store(std::span<const Key> keys, const Extent& from, const StoreRequest& request);

  // loading.cpp
  Result<Load> load(std::span<const Key> keys, const Extent& into, const LoadOptions& options);
  void start(LoadGroup& group) noexcept;
  void verify(LoadGroup& group) noexcept;
  // Starts the group again, in its turn, for bytes that other loads did not deliver.
  void read_again(LoadGroup& group) noexcept;
  void cancel(LoadState& load);
  // Makes its copies in flight, or its place in line, more urgent.
  void promote(LoadGroup& group);

  // Counts as an operation: close() waits until the flush sees that the store is closing.
  Status flush(Nanoseconds timeout, const Stop& stop);

  // storing.cpp
  void start(Arrival& arrival) noexcept;
  void stored(std::unique_ptr<Arrival> arrival, const Error* why) noexcept;

  // Sleeps until `ended` returns true, and runs jobs meanwhile. `word` changes after `ended` has
  // become true.
  Status wait(const std::atomic<std::uint32_t>& word, const std::function<bool()>& ended,
              Nanoseconds timeout, const char* what, Nanoseconds looking = {});
  void poll();
  StoreStats stats() const;

  // Reports an end and wakes the waiting threads.
  void end(Ending& ending, std::atomic<std::uint32_t>& word) noexcept;
  void enqueue(Job& job) noexcept;

 private:
  friend struct Transit;
  friend struct Unlisting;

  StoreCore(Mover& mover, StoreOptions options);
  Status open_tier(unsigned index);
  class Closing;
  Status close(Closing& closing);
  // The placement of memory through which blocks pass for their checksums.
  Placement passage_memory() const;
  void take_over_found(Tier& tier) REQUIRES(mutex_);
  std::shared_ptr<LoadState> one_not_cancelled();

  // The extent of `bytes` bytes at offset `from` within the slot.
  Extent in_slot(const Tier& tier, std::uint32_t slot, std::uint64_t from, Bytes bytes) const;
  // The fragments of the user's memory for layers [first, first + layers) of one block, each with
  // its place in a slot.
  struct Fragment {
    Extent user;
    std::uint64_t in_block;
    Bytes bytes;
  };
  void fragments(const Extent& user, Layout layout, std::size_t position, unsigned first,
                 unsigned layers, std::vector<Fragment>& result) const;
  Status check_user(const Extent& user, std::size_t blocks,
                    std::span<const std::size_t> positions) const;

  // room.cpp. Whether a block may be lost for the space requested: its only copy is dropped if it
  // cannot be written to a slower tier.
  enum class Loss : std::uint8_t { never, allowed };
  // Returns a slot that can be filled now.
  std::optional<std::uint32_t> take_slot(unsigned tier, Loss loss) REQUIRES(mutex_);
  // Evicts blocks until `wanted` slots are free or will be.
  void make_room(unsigned tier, std::size_t wanted, Loss loss) REQUIRES(mutex_);
  bool let_one_leave(unsigned tier, Loss loss) REQUIRES(mutex_);
  // The disk had no space for data written to this slot. The slot is free again.
  void disk_is_full(Tier& tier, std::uint32_t slot) REQUIRES(mutex_);
  // The disk had space for this slot. If the slot was set aside, all such slots are usable again.
  void disk_has(Tier& tier, std::uint32_t slot) REQUIRES(mutex_);
  // All slots for which the disk had no space may be tried again.
  void reopen_disk(Tier& tier) REQUIRES(mutex_);
  // How many slots of the tier are kept free.
  std::size_t reserve_of(unsigned tier) const;
  // The most blocks that are demoted from a tier, written by flush(), or promoted at a time.
  std::size_t most_moving() const;
  // Starts copying `copy` to a slower tier that has a slot for it.
  bool demote(Copy& copy, unsigned tier, Loss loss) REQUIRES(mutex_);
  bool only_in_memory(const Entry& entry) const REQUIRES(mutex_);
  // The block waits for a slot or is being copied to a tier, and is not in the folder.
  bool arriving(const Entry& entry) const REQUIRES(mutex_);
  Status flush_all(Nanoseconds timeout, const Stop& stop);
  struct Flushing {
    std::vector<Key> arriving;  // since flush() began, and still arriving
    std::vector<Key> keys;      // blocks to write once `arriving` is empty; the next is last
    std::uint64_t failed = 0;   // failures counted before flush() began
    bool listed = false;        // whether `keys` are known
  };
  // Returns true, and sets `keys`, once no block of `arriving` is arriving any more.
  bool list(Flushing& flushing);
  // Starts writing the next blocks. Returns false if none is left or being written.
  bool flush_some(std::vector<Key>& keys);
  // The result of a flush() with `left` blocks to write; `failed` were counted before it began.
  Status flushed(std::size_t left, std::uint64_t failed, Status outcome) const;
  void fill(Copy& copy, Entry& entry, unsigned tier, std::uint32_t slot) REQUIRES(mutex_);
  void enter_order(Copy& copy, unsigned tier) REQUIRES(mutex_);
  void ready(Copy& copy, unsigned tier) REQUIRES(mutex_);
  // Frees the slot, and the entry with its last copy. `half`: the block or its header may have been
  // written, but not both.
  void drop(Copy& copy, unsigned tier, bool half = false) REQUIRES(mutex_);
  void pin(Entry& entry) REQUIRES(mutex_);
  void unpin(Entry& entry) REQUIRES(mutex_);
  // Whether another tier serves the block too.
  bool elsewhere(const Copy& copy) const REQUIRES(mutex_);
  void note(const Error& error) noexcept REQUIRES(mutex_);

  // removing.cpp. Returns false if the block was removed before.
  bool remove(Entry& entry) REQUIRES(mutex_);
  // Stops serving a ready copy of a removed block.
  void withdraw(Copy& copy, unsigned tier) REQUIRES(mutex_);
  // Frees the slot of the folder once its header is overwritten.
  void unlist(Unlisting::Slot slot) noexcept REQUIRES(mutex_);
  // Unlists free slots whose header names a block that is `gone`.
  void unlist_free(const std::function<bool(const Key&)>& gone) REQUIRES(mutex_);

  // transit.cpp. Starts copying `copy` to this slot of another tier. `then`: `copy` stays, leaves,
  // or leaves if the copy succeeds. Returns false without memory.
  enum class Then : std::uint8_t { stays, leaves, leaves_if_copied };
  bool send(Copy& copy, unsigned tier, unsigned to, std::uint32_t slot, Then then) REQUIRES(mutex_);
  // `why`: the error if it failed.
  void sent(Transit& transit, const Error* why) noexcept;
  // Counts a use. Returns how many uses of blocks there were since the block's last use, including
  // this one; empty for the first use.
  std::optional<std::uint64_t> use(Entry& entry) REQUIRES(mutex_);
  // Starts a promotion of the block, which was used again, to the fastest tier that may have it.
  void rise(Entry& entry, std::optional<std::uint64_t> since) REQUIRES(mutex_);
  bool may_rise(const Entry& entry, unsigned to, std::uint64_t since) const REQUIRES(mutex_);

  // storing.cpp
  void place_pending(Later& later) REQUIRES(mutex_);
  bool touch(Entry& entry) REQUIRES(mutex_);
  // Makes an entry that waits for its block. Returns nullptr if the block is refused.
  Arrival* expect(const Key& key, const std::shared_ptr<StoredState>& state) REQUIRES(mutex_);
  // The arrival was given up.
  void drop_pending(std::unique_ptr<Arrival> arrival, std::size_t StoredCounts::* what,
                    Later& later) REQUIRES(mutex_);
  void count(StoredState& state, std::size_t StoredCounts::* what, std::size_t blocks, Later& later)
      REQUIRES(mutex_);

  // loading.cpp
  // Returns how many leading blocks there are. If any is missing, pins none.
  std::size_t pin_all(std::span<const Key> keys, LoadState& load) noexcept REQUIRES(mutex_);
  void keep(LoadState& load) REQUIRES(mutex_);
  void begin(LoadState& load) noexcept;
  // Ends the load; nothing of it is copied.
  void give_up(LoadState& load, const Error& why) noexcept;
  // Starts layers of loads in line, as far as they may be read now. `later`: as jobs. If not `all`,
  // layers that read nothing keep their turn until they start, so that the call is short.
  void start_next(bool later, bool all = true) noexcept;
  LoadGroup* next_in_line() noexcept;
  LoadGroup& take_turn(LoadGroup& group) noexcept REQUIRES(turns_mutex_);
  // Returns whether the group had a turn.
  bool give_back(LoadGroup& group, bool unused) noexcept;
  // The group has been read, or will not be: gives its turn to another.
  void read(LoadGroup& group) noexcept;
  Bytes bytes_of(const LoadGroup& group) const;
  // Allocates memory for blocks that pass through memory of CPUs and have no slot there.
  void take_passage(LoadState& load) noexcept;
  void start_copies(LoadGroup& group);
  void plan_copies(LoadGroup& group, std::vector<MovePair>& pairs);
  Extent passing(const LoadState& load, const LoadItem& item, unsigned layer,
                 Bytes bytes) const noexcept;
  void plan_copy(LoadGroup& group, unsigned item, unsigned first, unsigned layers,
                 std::vector<MovePair>& pairs);
  static bool has_turns(const LoadState& load) {
    return load.options.priority == Priority::demand && load.options.deadlines.empty();
  }
  // The group copies nothing, and ends once no other load copies for it.
  void give_up(LoadGroup& group, const Error& why, bool read) noexcept;
  void listen_to(LoadGroup& group, std::span<const MovePair> pairs,
                 void (StoreCore::*then)(LoadGroup&, bool));
  Transfer moving(LoadGroup& group) noexcept;
  void arrived(LoadGroup& group, bool well) noexcept;
  void pass_on(LoadGroup& group);
  void passed_on(LoadGroup& group, bool well) noexcept;
  void finish(LoadGroup& group) noexcept;
  void ended(LoadState& load, Later& later);
  // `read`: the bytes came from the tiers of the blocks.
  void note_failures(LoadGroup& group, bool read) noexcept;
  void fail_group(LoadGroup& group, const Error& error) noexcept;
  void fail_item(LoadGroup& group, unsigned item, const Error& error, bool read) noexcept;
  // Whether a failed read of the item means that its copy may be lost: the copy is on SSD, or in
  // the memory of a GPU other than the destination.
  bool may_be_lost(const LoadGroup& group, const LoadItem& item) const;
  bool from_folder(const LoadItem& item) const { return tiers_[item.tier].folder != nullptr; }
  bool verified(const LoadGroup& group, const LoadItem& item, unsigned layer) const;

  // joining.cpp. Called when the group is about to start. Finds the parts that other loads are
  // reading or have; the group reads the rest, and others may follow it.
  void join(LoadGroup& group) noexcept;
  // Returns false if the group must read the layer itself.
  bool follow(LoadGroup& group, unsigned item, unsigned layer, std::vector<Follower>& following)
      REQUIRES(mutex_, joins_mutex_);
  bool in_memory(const Entry& entry) const REQUIRES(mutex_);
  // Returns false if this reader has nothing to offer.
  bool follow(LoadGroup& group, const LoadItem& reader, Follower& follower) REQUIRES(joins_mutex_);
  bool may_follow(const LoadGroup& group, const LoadGroup& reading) const REQUIRES(joins_mutex_);
  // Gives followers the bytes, or if reading failed, tells them to read themselves.
  void share(LoadGroup& group) noexcept;
  // Takes bytes that are there already. Returns false if they no longer are.
  bool take_late(const Follower& follower) noexcept;
  void take_late(LoadGroup& group) noexcept;
  // The load was cancelled: it follows no other load any more.
  void unfollow(LoadState& load) noexcept;
  // The load has ended: no other load takes bytes from its memory any more.
  void leave(LoadState& load) noexcept;
  void deliver(Follower& follower, bool delivered) noexcept;
  // Counts one pending part less; after the last, continues the group.
  void settle(LoadGroup& group) noexcept;
  // Makes the loads that read for the group as urgent as the group.
  void promote_leaders(LoadGroup& group) noexcept;
  // Where a layer of a block is put first: the user's memory, or memory that it passes through.
  Extent landing(const LoadState& load, unsigned item, unsigned layer) const noexcept;

  // streams.cpp. Returns nullptr if there is no stream to wait for.
  Result<std::unique_ptr<cuda::StreamPoint>> point_of(const Extent& user,
                                                      std::optional<std::uint64_t> stream);
  // The driver's number of the device, asked once for each node.
  Result<cuda::CUdevice> device_of(const cuda::Driver& driver, const Node& gpu);
  void park(std::list<Parked>& one) noexcept;
  bool over(Parked& parked) const;
  void go_on(Parked& parked) noexcept;
  // Starts operations whose stream has reached its point. Returns the time until the next look.
  Nanoseconds look_at_streams() noexcept;

  JobList& jobs_of(Turn turn) REQUIRES(jobs_mutex_) {
    return jobs_[static_cast<std::size_t>(turn)];
  }
  bool run_one();
  void work();
  // Promotes groups that have become urgent. Returns the time until the next.
  Nanoseconds promote_due();
  void begin_operation() { ++operations_; }
  // Must be the last access: the store may be destroyed after it.
  void end_operation() { --operations_; }
  friend struct LoadState;

  // Immutable after construction.
  Mover& mover_;
  const StoreOptions options_;
  const Origin origin_;
  const std::uint64_t block_;
  const std::uint64_t slot_;
  std::optional<unsigned> for_cpus_;  // the first tier that CPUs address; constant after open()

  mutable Mutex mutex_;
  std::vector<Tier> tiers_;  // their number and objects are immutable after open()
  std::unordered_map<Key, Entry, std::size_t (*)(const Key&)> entries_ GUARDED_BY(mutex_);
  JobList pending_ GUARDED_BY(mutex_);  // arrivals, which the list owns
  std::unordered_map<LoadState*, std::shared_ptr<LoadState>> loads_ GUARDED_BY(mutex_);
  Due due_ GUARDED_BY(mutex_);
  // The deadlines of a load that has not begun. Sets the urgency of its groups before them.
  Due due_of(const std::shared_ptr<LoadState>& load) const;
  std::uint64_t in_flight_ GUARDED_BY(mutex_) = 0;
  std::uint64_t uses_ GUARDED_BY(mutex_) = 0;  // uses of blocks
  std::size_t rising_ GUARDED_BY(mutex_) = 0;  // blocks being promoted
  // The steps of close(), in order. No new operation is accepted (also giving_up_, without the
  // lock).
  bool closing_ GUARDED_BY(mutex_) = false;
  // Blocks pinned by matches may be released.
  bool matches_hold_nothing_ GUARDED_BY(mutex_) = false;
  // The worker has ended too: the store is closed.
  bool tiers_gone_ GUARDED_BY(mutex_) = false;
  StoreStats counts_ GUARDED_BY(mutex_);
  std::string last_error_ GUARDED_BY(mutex_);
  Nanoseconds last_error_at_ GUARDED_BY(mutex_){0};
  std::uint64_t pinned_ GUARDED_BY(mutex_) = 0;  // entries
  Unlisting unlisting_;

  Mutex jobs_mutex_;
  CondVar jobs_there_;
  std::array<JobList, 3> jobs_ GUARDED_BY(jobs_mutex_);  // by turn
  bool stopping_ GUARDED_BY(jobs_mutex_) = false;
  // The worker must not sleep until its old deadline.
  bool due_changed_ GUARDED_BY(jobs_mutex_) = false;
  std::thread worker_;
  std::atomic<std::thread::id> worker_id_;
  std::atomic<std::uint32_t> someone_closes_{0};  // 1: one thread is closing; others wait for it

  Mutex turns_mutex_;
  JobList in_line_ GUARDED_BY(turns_mutex_);  // loads with layers to start, by arrival
  JobList again_ GUARDED_BY(turns_mutex_);    // groups that need a second turn
  unsigned reading_groups_ GUARDED_BY(turns_mutex_) = 0;
  std::uint64_t reading_bytes_ GUARDED_BY(turns_mutex_) = 0;
  std::uint64_t first_bytes_ GUARDED_BY(turns_mutex_) = 0;  // the first layers in reading_bytes_
  // How many groups passed the first in line.
  unsigned passed_ GUARDED_BY(turns_mutex_) = 0;

  Mutex joins_mutex_;  // guards which loads follow others
  Mutex parked_mutex_;
  std::list<Parked> parked_ GUARDED_BY(parked_mutex_);
  std::map<NodeId, cuda::CUdevice> devices_ GUARDED_BY(parked_mutex_);
  std::atomic<std::size_t> parked_count_{0};  // includes those that are being looked at
  std::atomic<bool> giving_up_{false};        // the store is closing

  std::atomic<std::uint64_t> operations_{0};  // operations that will access the store again
  std::atomic<std::uint32_t> transits_ended_{0};
};

}  // namespace headrace::kvcache
