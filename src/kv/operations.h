// SPDX-License-Identifier: Apache-2.0
// The operations of a KV store that go on after their call: loads, stores, removals from the
// folder; and the jobs by which they do.
//
// A Job is what is to be done once a copy has ended. It is a part of its operation, so that no end
// needs memory: one that takes time (checksums, copies that cores make of a load) is done by the
// worker or by who waits. What it starts may need memory: where there is none, that fails, and the
// block is dropped. Functions that others' threads call at an end are noexcept.
//
// Thread-compatible: whoever has a list guards it. What else guards a field stands beside it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cuda/cuda.h"
#include "core/mutex.h"
#include "headrace/buffer.h"
#include "headrace/kv/store.h"

namespace headrace::kv {

struct Entry;
struct LoadGroup;
struct LoadItem;
struct LoadState;

// Whose jobs are done first: loads wait for no checksum of a block that leaves.
enum class Turn : std::uint8_t { demand, load, other };

struct Job {
  virtual ~Job() = default;
  virtual void run() noexcept = 0;
  virtual Turn turn() const { return Turn::other; }
  Job* next = nullptr;
  bool queued = false;  // in jobs_; guarded by jobs_mutex_
};

// In their order; it owns none.
class JobList {
 public:
  JobList() = default;
  JobList(const JobList&) = delete;
  JobList& operator=(const JobList&) = delete;
  bool empty() const { return first_ == nullptr; }
  Job* first() const { return first_; }
  std::size_t size() const { return size_; }
  void push(Job& job) {
    job.next = nullptr;
    *last_ = &job;
    last_ = &job.next;
    ++size_;
  }
  // nullptr: empty.
  Job* pop() {
    Job* const job = first_;
    if (job == nullptr) return nullptr;
    first_ = job->next;
    if (first_ == nullptr) last_ = &first_;
    --size_;
    return job;
  }
  // Whether it was there.
  bool remove(Job& job) {
    for (Job** at = &first_; *at != nullptr; at = &(*at)->next) {
      if (*at != &job) continue;
      *at = job.next;
      if (last_ == &job.next) last_ = at;
      --size_;
      return true;
    }
    return false;
  }

 private:
  Job* first_ = nullptr;
  Job** last_ = &first_;
  std::size_t size_ = 0;
};

// A job that hears of the end of a copy.
struct Copying : Job {
  // Sees to it that copied() is called at the end of `transfer`. Where there is no memory for that,
  // it is tried again as a job.
  void hear(StoreCore& core, const Transfer& transfer) noexcept;
  virtual void copied(const Result<MoveStats>& outcome) noexcept = 0;

 protected:
  // For run(): whether it was only that.
  bool heard_late(StoreCore& core) noexcept;

 private:
  std::optional<Transfer> unheard_;
};

// What is done once the lock is let go.
class Later {
 public:
  Later() = default;
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;
  ~Later() {
    while (Job* const job = jobs_.pop()) job->run();
  }
  void add(Job& job) { jobs_.push(job); }

 private:
  JobList jobs_;
};

// An end that can be waited for and told of.
struct Ending {
  Mutex mutex;
  std::atomic<bool> over{false};  // nothing of what is told changes any more
  std::vector<std::function<void()>> thens GUARDED_BY(mutex);
};

struct StoredState final : Job, std::enable_shared_from_this<StoredState> {
  StoreCore* core = nullptr;
  std::size_t left GUARDED_BY(ending.mutex) = 0;
  StoredCounts counts GUARDED_BY(ending.mutex);
  Ending ending;
  std::atomic<std::uint32_t> word{0};  // 1: over
  std::shared_ptr<const void> keep;    // as of StoreRequest
  std::shared_ptr<StoredState> self;   // while it is a job
  void run() noexcept override;        // tells its end
};

// A block of a store, from the user's memory to a slot.
struct Arrival final : Copying {
  std::shared_ptr<StoredState> state;
  Entry* entry = nullptr;
  Extent from;
  Layout layout = Layout::page_first;
  std::size_t position = 0;
  Priority priority = Priority::migration;
  void run() noexcept override;  // starts its copy
  void copied(const Result<MoveStats>& outcome) noexcept override;
};

// One block of a load.
struct LoadItem {
  LoadState* load = nullptr;
  LoadItem* next = nullptr;  // of Entry::readers
  bool reads = false;        // it is in that list; guarded, as that is, by the store's lock
  Entry* entry = nullptr;
  unsigned tier = 0;
  std::uint32_t slot = 0;
  std::size_t position = 0;
  std::optional<std::uint64_t> since;  // as StoreCore::use()
  std::optional<std::uint32_t> kept;   // the slot of the first tier of CPUs that will have it
  Extent through;                      // memory by which it goes, if any: that slot, or `passage`
  std::uint32_t in_passage = 0;        // its number there
  std::atomic<bool> failed{false};     // damaged, or not copied
};

// A layer of a block that a load does not read itself, as another reads it or has it.
struct Follower {
  LoadGroup* group = nullptr;
  unsigned item = 0;
  unsigned layer = 0;
  unsigned theirs = 0;  // the block's number in the load that reads it, or has it
  bool late = false;    // it is there already: with `leader`, or in memory
  bool delivered = false;
  std::shared_ptr<LoadState> leader;  // until it is taken
  LoadGroup* reading = nullptr;       // in whose list it is; guarded by joins_mutex_, as are
  Follower* next = nullptr;
  Follower** at = nullptr;
};

// Groups of loads that a deadline makes urgent, by when.
using Due = std::multimap<Nanoseconds, std::pair<std::weak_ptr<LoadState>, unsigned>>;

// What of a load is told together: a layer, or all.
struct LoadGroup final : Copying {
  LoadState* load = nullptr;
  unsigned first = 0;
  unsigned layers = 0;
  std::vector<unsigned> owners;                         // of each pair in flight: the item's number
  void (StoreCore::*then)(LoadGroup&, bool) = nullptr;  // what follows; whether all went well
  std::atomic<bool> wanted{false};                      // whatever moves of it goes as demand
  Priority until_wanted = Priority::demand;             // constant once it has begun
  std::optional<Due::iterator> due;                     // guarded by the store's lock
  bool started = false;
  bool reading = false;   // counts against StoreOptions::load_ahead; guarded by turns_mutex_
  std::vector<bool> own;  // by at(): what it reads or copies itself
  std::vector<Follower> following;      // by item and layer; replaced under joins_mutex_
  std::atomic<std::size_t> pending{2};  // of those, the transfer, and who starts that
  std::atomic<bool> alone{false};       // some were not delivered: they are read once more
  unsigned rounds = 0;                  // how often that was so
  bool joined = false;                  // join() has been called in this round
  bool given_up = false;                // constant once it has started
  enum class Sharing : std::uint8_t { not_yet, open, done };  // done: its bytes are there, or not
  Sharing sharing = Sharing::not_yet;                         // guarded by joins_mutex_, as are
  Follower* followers = nullptr;                              // those of others
  std::uint64_t waits = 0;  // bytes of the largest group that it waits for, itself included
  Transfer moving GUARDED_BY(ending.mutex);
  Status outcome GUARDED_BY(ending.mutex);
  Ending ending;
  void run() noexcept override;
  Turn turn() const override;
  void copied(const Result<MoveStats>& moved) noexcept override;
  Priority priority() const { return wanted.load() ? Priority::demand : until_wanted; }
  std::size_t at(unsigned item, unsigned layer) const { return item * layers + layer - first; }
  // nullptr: it reads that itself.
  Follower* followed(unsigned item, unsigned layer) noexcept;
};

struct LoadState final : Job, std::enable_shared_from_this<LoadState> {
  StoreCore* core = nullptr;
  Extent into;
  LoadOptions options;
  Nanoseconds asked{0};  // when: its deadlines count from then
  std::vector<LoadItem> items;
  std::vector<LoadGroup> groups;
  // For blocks that CPUs look at on the way. Layer after layer where they are read so: block after
  // block the first layer would touch every huge page, which the kernel clears first (200 ms a
  // GiB).
  std::unique_ptr<Buffer> passage;
  std::uint32_t passing = 0;        // blocks in it
  std::shared_ptr<LoadState> self;  // while it is a job
  void run() noexcept override;     // lets the passage go
  std::size_t next_group = 0;       // of those in line; guarded by turns_mutex_
  std::atomic<std::size_t> leading{0};
  std::atomic<bool> cancelled{false};
  Mutex sharing;                          // who takes bytes from where they pass through holds it
  bool over GUARDED_BY(sharing) = false;  // they are there no more
  std::atomic<std::size_t> left{0};       // groups
  std::atomic<std::uint32_t> word{0};     // changes with each group that ends

  LoadGroup& group_of(unsigned layer) { return groups.size() == 1 ? groups[0] : groups[layer]; }
};

// Headers of slots of the folder whose blocks were removed, or not written: written over with
// nothing, so many at a time, before the slots are free. One for a store, begun whenever there is
// work.
struct Unlisting final : Copying {
  static constexpr std::size_t kMost = 64;
  struct Slot {
    std::uint32_t number = 0;
    bool failed = false;  // to take a block, which has been counted
  };
  StoreCore* core = nullptr;
  std::vector<Slot> slots;  // has room for all; guarded by the store's lock
  std::array<Slot, kMost> batch{};
  std::size_t size = 0;  // of the batch
  bool busy = false;     // guarded by the store's lock
  void run() noexcept override;
  void copied(const Result<MoveStats>& outcome) noexcept override;
};

// A load or a store that has not begun, since a stream of the user's is not yet where it was.
struct Parked {
  std::unique_ptr<cuda::StreamPoint> point;
  Nanoseconds until{0};
  std::shared_ptr<LoadState> load;  // one of these two
  std::shared_ptr<StoredState> stored;
  std::unique_ptr<JobList> arrivals = std::make_unique<JobList>();  // of the store
  Status outcome;
};

}  // namespace headrace::kv
