// SPDX-License-Identifier: Apache-2.0
// What Store, Match, Load and Stored are made of.
//
// One lock for the tables: which block has a copy in which slot of which tier. No copy is started,
// waited for or told of under it (Later). A copy of a block is
//   filling -> ready -> leaving -> none        leaving: being copied to another tier, still served
//                  \--> damaged -> none        damaged, or removed: served no more, goes with its
//                                              last pin
// Ready copies are in their tier's order of eviction, and those that leave but stay too (flush(),
// promotion). A block that is pinned, or of which a copy is filling, loses no copy.
//
// CPUs compute checksums. What goes between a folder and memory that they do not address passes
// through memory that they do: a slot of the first tier of such memory, or some taken for it.
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
#include "headrace/kv/store.h"
#include "kv/folder.h"
#include "kv/operations.h"

namespace headrace::kv {

inline constexpr const char* kTheStore = "the KV store";
// Longer ones are taken for this; sums of times do not overflow then.
inline constexpr Nanoseconds kLongestWait = std::chrono::years{1};
// How long a disk that was full, or a tier to which a copy failed, is left alone.
inline constexpr Nanoseconds kRest = std::chrono::seconds{10};
// So often a load is started, and follows others, for what it was not given; then it reads itself.
inline constexpr unsigned kMostRounds = 2;
// How often flush() and close() ask whether they shall stop.
inline constexpr Nanoseconds kAskToStop = std::chrono::milliseconds{50};
using Stop = std::function<bool()>;  // may be empty: never
// Short enough to be copied without memory.
inline const Error kNoMemory{ErrorCode::exhausted, "out of memory"};

struct Entry;

struct Copy : EvictionLinks {
  enum class State : std::uint8_t { none, filling, ready, leaving, damaged };
  Entry* entry = nullptr;
  std::uint32_t slot = 0;
  State state = State::none;

  bool served() const { return state == State::ready || state == State::leaving; }
};

// A block of which there is a copy, or that waits for room.
struct Entry {
  Key key;
  unsigned pins = 0;            // of matches and loads
  bool waiting = false;         // for a slot of the first tier
  bool removed = false;         // by remove(): no copy is served, and all go as soon as they can
  LoadItem* readers = nullptr;  // of loads that read some of it from the folder; the last first
  // Which of all uses of blocks was its last: stored, stored again or loaded. 0: none so far.
  std::uint64_t used = 0;
  std::array<Copy, kMostTiers> copies;

  std::optional<unsigned> fastest() const;
};

// What a full disk leaves of a folder: a slot that was written is a place that it has, one that was
// not may be none.
struct DiskRoom {
  std::vector<bool> written;        // by slot
  std::vector<std::uint32_t> none;  // free slots that the disk has no room for, set aside
  // A slot that was not written yet found no room, and none of those was tried since with success.
  bool full = false;
  std::optional<std::uint32_t> trying;  // one of `none`, taken from it to be tried again
  Nanoseconds again{0};                 // when the next one is
  Nanoseconds closed{0};                // nothing is written before: a written slot had no room
};

struct Tier {
  TierStats counts;
  std::unique_ptr<Buffer> buffer;  // one of these
  std::unique_ptr<Folder> folder;
  std::uint32_t slots = 0;
  std::vector<std::uint32_t> free;
  DiskRoom disk;  // of a folder
  // A block that could have stayed failed to come here: until then only those come that must leave.
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

  // Cancels and refuses what goes on, waits for copies in flight, and lets the tiers go. Matches
  // hold nothing then. Not all of it in time, or stopped: the next call goes on.
  Status close(Nanoseconds timeout, const Stop& stop);
  bool closed() const { return giving_up_.load(); }
  // cancelled: it is closed, or about to be.
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
  // Takes what is next of the headers to be written over; false: nothing.
  bool next_unlisted() noexcept;
  void unlisted(const Error* why) noexcept;

  // storing.cpp
  Result<Stored> store(std::span<const Key> keys, const Extent& from, const StoreRequest& request);

  // loading.cpp
  Result<Load> load(std::span<const Key> keys, const Extent& into, const LoadOptions& options);
  void start(LoadGroup& group) noexcept;
  void verify(LoadGroup& group) noexcept;
  // Starts once more, in its turn, for what others did not give it.
  void read_again(LoadGroup& group) noexcept;
  void cancel(LoadState& load);
  // What is moving of it, or waits for its turn, goes before what is less urgent.
  void promote(LoadGroup& group);

  // Counts as an operation: close() waits until it sees that the store is being closed.
  Status flush(Nanoseconds timeout, const Stop& stop);

  // storing.cpp
  void start(Arrival& arrival) noexcept;
  void stored(std::unique_ptr<Arrival> arrival, const Error* why) noexcept;

  // Sleeps until `ended`, doing what is to be done. `word` changes once `ended` has become true.
  Status wait(const std::atomic<std::uint32_t>& word, const std::function<bool()>& ended,
              Nanoseconds timeout, const char* what, Nanoseconds looking = {});
  void poll();
  StoreStats stats() const;

  // Tells an end and wakes who waits for it.
  void end(Ending& ending, std::atomic<std::uint32_t>& word) noexcept;
  void enqueue(Job& job) noexcept;

 private:
  friend struct Transit;
  friend struct Unlisting;

  StoreCore(Mover& mover, StoreOptions options);
  Status open_tier(unsigned index);
  class Closing;
  Status close(Closing& closing);
  // Where what CPUs look at on its way is put.
  Placement passage_memory() const;
  void take_over_found(Tier& tier) REQUIRES(mutex_);
  std::shared_ptr<LoadState> one_not_cancelled();

  // A copy of `bytes` at `from` within the slot.
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

  // room.cpp. Whether a block may be lost for the room that is asked for: there is no other copy of
  // it, and it cannot be written to a slower tier.
  enum class Loss : std::uint8_t { never, allowed };
  // A slot that can be filled now.
  std::optional<std::uint32_t> take_slot(unsigned tier, Loss loss) REQUIRES(mutex_);
  // Lets blocks leave until so many slots are free or will be.
  void make_room(unsigned tier, std::size_t wanted, Loss loss) REQUIRES(mutex_);
  bool let_one_leave(unsigned tier, Loss loss) REQUIRES(mutex_);
  // The disk had no room for what was written to this slot, which is free again.
  void disk_is_full(Tier& tier, std::uint32_t slot) REQUIRES(mutex_);
  // It had: for slots too that it had none for, if this one is such.
  void disk_has(Tier& tier, std::uint32_t slot) REQUIRES(mutex_);
  // Whatever it had no room for may be tried again.
  void reopen_disk(Tier& tier) REQUIRES(mutex_);
  // Slots of the tier that are kept free.
  std::size_t reserve_of(unsigned tier) const;
  // Most blocks that leave a tier, are written by flush(), or are promoted, at a time.
  std::size_t most_moving() const;
  // Starts the copy of `copy` to a slower tier that has a slot for it.
  bool demote(Copy& copy, unsigned tier, Loss loss) REQUIRES(mutex_);
  bool only_in_memory(const Entry& entry) const REQUIRES(mutex_);
  // It waits for room, or is being copied to a tier, and is not in the folder.
  bool arriving(const Entry& entry) const REQUIRES(mutex_);
  Status flush_all(Nanoseconds timeout, const Stop& stop);
  struct Flushing {
    std::vector<Key> arriving;  // when it began, and still
    std::vector<Key> keys;      // of what is to be written, once those are there; the next is last
    std::uint64_t failed = 0;   // counted before it
    bool listed = false;        // whether `keys` are known
  };
  // Whether nothing arrives any more of what did when the flush began; then it has its keys.
  bool list(Flushing& flushing);
  // Starts to write what is next. False: nothing is left to be written or under way.
  bool flush_some(std::vector<Key>& keys);
  // The end of a flush() that has `left` to write, when `failed` were counted before it.
  Status flushed(std::size_t left, std::uint64_t failed, Status outcome) const;
  void fill(Copy& copy, Entry& entry, unsigned tier, std::uint32_t slot) REQUIRES(mutex_);
  void enter_order(Copy& copy, unsigned tier) REQUIRES(mutex_);
  void ready(Copy& copy, unsigned tier) REQUIRES(mutex_);
  // The slot is free again; the entry goes with its last copy. `half`: it may have been written,
  // or its header, not both.
  void drop(Copy& copy, unsigned tier, bool half = false) REQUIRES(mutex_);
  void pin(Entry& entry) REQUIRES(mutex_);
  void unpin(Entry& entry) REQUIRES(mutex_);
  // Whether another tier serves the block too.
  bool elsewhere(const Copy& copy) const REQUIRES(mutex_);
  void note(const Error& error) noexcept REQUIRES(mutex_);

  // removing.cpp. False: it was removed before.
  bool remove(Entry& entry) REQUIRES(mutex_);
  // A ready copy of a block that was removed is served no more.
  void withdraw(Copy& copy, unsigned tier) REQUIRES(mutex_);
  // The slot of the folder is free once its header is written over.
  void unlist(Unlisting::Slot slot) noexcept REQUIRES(mutex_);
  // Those that hold no block but have the header of one that is `gone`.
  void unlist_free(const std::function<bool(const Key&)>& gone) REQUIRES(mutex_);

  // transit.cpp. Starts the copy of `copy` to this slot of another tier. What becomes of `copy`:
  // it stays, it leaves, or it leaves if that went well. False: no memory.
  enum class Then : std::uint8_t { stays, leaves, leaves_if_copied };
  bool send(Copy& copy, unsigned tier, unsigned to, std::uint32_t slot, Then then) REQUIRES(mutex_);
  // `why`: it failed.
  void sent(Transit& transit, const Error* why) noexcept;
  // Counts a use. How many uses of blocks there were since its last, with this one; empty: it is
  // the first.
  std::optional<std::uint64_t> use(Entry& entry) REQUIRES(mutex_);
  // Starts a copy in the fastest tier that is to have the block, which was used again.
  void rise(Entry& entry, std::optional<std::uint64_t> since) REQUIRES(mutex_);
  bool may_rise(const Entry& entry, unsigned to, std::uint64_t since) const REQUIRES(mutex_);

  // storing.cpp
  void place_pending(Later& later) REQUIRES(mutex_);
  bool touch(Entry& entry) REQUIRES(mutex_);
  // Makes an entry that waits for its block. nullptr: it is refused.
  Arrival* expect(const Key& key, const std::shared_ptr<StoredState>& state) REQUIRES(mutex_);
  // It does not come.
  void drop_pending(std::unique_ptr<Arrival> arrival, std::size_t StoredCounts::* what,
                    Later& later) REQUIRES(mutex_);
  void count(StoredState& state, std::size_t StoredCounts::* what, std::size_t blocks, Later& later)
      REQUIRES(mutex_);

  // loading.cpp
  // How many leading blocks there are; where that is not all, none is pinned.
  std::size_t pin_all(std::span<const Key> keys, LoadState& load) noexcept REQUIRES(mutex_);
  void keep(LoadState& load) REQUIRES(mutex_);
  void begin(LoadState& load) noexcept;
  // None of it is copied.
  void give_up(LoadState& load, const Error& why) noexcept;
  // Starts layers of loads in line, as far as they may be read now; `later`: as jobs. Not `all`:
  // those that read nothing keep their turn until they start, so that the call is short.
  void start_next(bool later, bool all = true) noexcept;
  LoadGroup* next_in_line() noexcept;
  LoadGroup& take_turn(LoadGroup& group) noexcept REQUIRES(turns_mutex_);
  // Whether it had a turn.
  bool give_back(LoadGroup& group, bool unused) noexcept;
  // It is read, or will not be: another's turn.
  void read(LoadGroup& group) noexcept;
  Bytes bytes_of(const LoadGroup& group) const;
  // For the blocks that pass through memory of CPUs and have no slot there.
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
  // It copies nothing, and ends once nobody copies for it.
  void give_up(LoadGroup& group, const Error& why, bool read) noexcept;
  void listen_to(LoadGroup& group, std::span<const MovePair> pairs,
                 void (StoreCore::*then)(LoadGroup&, bool));
  Transfer moving(LoadGroup& group) noexcept;
  void arrived(LoadGroup& group, bool well) noexcept;
  void pass_on(LoadGroup& group);
  void passed_on(LoadGroup& group, bool well) noexcept;
  void finish(LoadGroup& group) noexcept;
  void ended(LoadState& load, Later& later);
  // `read`: what has moved was read from the tiers of the blocks.
  void note_failures(LoadGroup& group, bool read) noexcept;
  void fail_group(LoadGroup& group, const Error& error) noexcept;
  void fail_item(LoadGroup& group, unsigned item, const Error& error, bool read) noexcept;
  // Whether a read of the item that failed tells of its copy: on SSD, or in the memory of a GPU
  // that is not the one it goes to.
  bool may_be_lost(const LoadGroup& group, const LoadItem& item) const;
  bool from_folder(const LoadItem& item) const { return tiers_[item.tier].folder != nullptr; }
  bool verified(const LoadGroup& group, const LoadItem& item, unsigned layer) const;

  // joining.cpp. Finds out, when it is about to start, what of it others read or have; it reads
  // the rest, and others may follow it.
  void join(LoadGroup& group) noexcept;
  // False: it reads that itself.
  bool follow(LoadGroup& group, unsigned item, unsigned layer, std::vector<Follower>& following)
      REQUIRES(mutex_, joins_mutex_);
  bool in_memory(const Entry& entry) const REQUIRES(mutex_);
  // False: there is nothing to be had from this reader.
  bool follow(LoadGroup& group, const LoadItem& reader, Follower& follower) REQUIRES(joins_mutex_);
  bool may_follow(const LoadGroup& group, const LoadGroup& reading) const REQUIRES(joins_mutex_);
  // To those that follow: its bytes, or if it did not get them the word to read themselves.
  void share(LoadGroup& group) noexcept;
  // What is there already. False: no more.
  bool take_late(const Follower& follower) noexcept;
  void take_late(LoadGroup& group) noexcept;
  // It was cancelled: it waits for nobody's reading any more.
  void unfollow(LoadState& load) noexcept;
  // It has ended: nobody takes bytes from its memory any more.
  void leave(LoadState& load) noexcept;
  void deliver(Follower& follower, bool delivered) noexcept;
  // One less is pending; what follows if it was the last.
  void settle(LoadGroup& group) noexcept;
  // Whoever reads for it is as urgent.
  void promote_leaders(LoadGroup& group) noexcept;
  // Where a layer of a block is put first: the user's memory, or what it passes through.
  Extent landing(const LoadState& load, unsigned item, unsigned layer) const noexcept;

  // streams.cpp. nullptr: there is none to wait for.
  Result<std::unique_ptr<cuda::StreamPoint>> point_of(const Extent& user,
                                                      std::optional<std::uint64_t> stream);
  // By the driver's number; it is asked once for each node.
  Result<cuda::CUdevice> device_of(const cuda::Driver& driver, const Node& gpu);
  void park(std::list<Parked>& one) noexcept;
  bool over(Parked& parked) const;
  void go_on(Parked& parked) noexcept;
  // Begins what waited for streams that have come so far; how long until the next look.
  Nanoseconds look_at_streams() noexcept;

  JobList& jobs_of(Turn turn) REQUIRES(jobs_mutex_) {
    return jobs_[static_cast<std::size_t>(turn)];
  }
  bool run_one();
  void work();
  // Promotes what has become urgent; how long until the next.
  Nanoseconds promote_due();
  void begin_operation() { ++operations_; }
  // The last that is done: the store may be gone then.
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
  JobList pending_ GUARDED_BY(mutex_);  // arrivals, which it owns
  std::unordered_map<LoadState*, std::shared_ptr<LoadState>> loads_ GUARDED_BY(mutex_);
  Due due_ GUARDED_BY(mutex_);
  // Those of a load that has not begun; sets how urgent its groups are before.
  Due due_of(const std::shared_ptr<LoadState>& load) const;
  std::uint64_t in_flight_ GUARDED_BY(mutex_) = 0;
  std::uint64_t uses_ GUARDED_BY(mutex_) = 0;  // of blocks
  std::size_t rising_ GUARDED_BY(mutex_) = 0;  // blocks
  // Steps of close(), in their order. Nothing new is taken; giving_up_ says so without the lock.
  bool closing_ GUARDED_BY(mutex_) = false;
  bool matches_hold_nothing_ GUARDED_BY(mutex_) = false;  // what they had pinned may go
  bool tiers_gone_ GUARDED_BY(mutex_) = false;            // and the worker: all is done
  StoreStats counts_ GUARDED_BY(mutex_);
  std::string last_error_ GUARDED_BY(mutex_);
  Nanoseconds last_error_at_ GUARDED_BY(mutex_){0};
  std::uint64_t pinned_ GUARDED_BY(mutex_) = 0;  // entries
  Unlisting unlisting_;

  Mutex jobs_mutex_;
  CondVar jobs_there_;
  std::array<JobList, 3> jobs_ GUARDED_BY(jobs_mutex_);  // by turn
  bool stopping_ GUARDED_BY(jobs_mutex_) = false;
  bool due_changed_ GUARDED_BY(jobs_mutex_) = false;  // the worker slept for too long otherwise
  std::thread worker_;
  std::atomic<std::thread::id> worker_id_;
  std::atomic<std::uint32_t> someone_closes_{0};  // 1: one thread does, and others wait for it

  Mutex turns_mutex_;
  JobList in_line_ GUARDED_BY(turns_mutex_);  // loads with layers to be started, by arrival
  JobList again_ GUARDED_BY(turns_mutex_);    // groups that had their turn, and need another
  unsigned reading_groups_ GUARDED_BY(turns_mutex_) = 0;
  std::uint64_t reading_bytes_ GUARDED_BY(turns_mutex_) = 0;
  std::uint64_t first_bytes_ GUARDED_BY(turns_mutex_) = 0;  // of those, in first layers
  unsigned passed_ GUARDED_BY(turns_mutex_) = 0;            // how often the first in line was

  Mutex joins_mutex_;  // loads that follow others
  Mutex parked_mutex_;
  std::list<Parked> parked_ GUARDED_BY(parked_mutex_);
  std::map<NodeId, cuda::CUdevice> devices_ GUARDED_BY(parked_mutex_);
  std::atomic<std::size_t> parked_count_{0};  // with those that are being looked at
  std::atomic<bool> giving_up_{false};        // the store is being closed

  std::atomic<std::uint64_t> operations_{0};  // that will touch the store again
  std::atomic<std::uint32_t> transits_ended_{0};
};

}  // namespace headrace::kv
