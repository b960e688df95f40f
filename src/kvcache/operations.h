// SPDX-License-Identifier: Apache-2.0
// The operations of a KV store that continue after their call (loads, stores, removals from the
// folder), and the jobs that continue them.
//
// A Job runs when a copy has ended. It is part of its operation, so no end needs memory. Jobs that
// take time (checksums, copies that cores make for a load) are run by the worker or by waiting
// threads. A job may start work that needs memory. Without memory that work fails and the block is
// dropped. Functions that the Mover's callbacks call are noexcept.
//
// Thread-compatible: the owner of a list guards it. Other locks are named at the fields.
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
#include "headrace/kvcache/store.h"

namespace headrace::kvcache {

struct Entry;
struct LoadGroup;
struct LoadItem;
struct LoadState;

// The order in which jobs run: loads do not wait for checksums of blocks that leave.
enum class Turn : std::uint8_t { demand, load, other };

struct Job {
  virtual ~Job() = default;
  virtual void run() noexcept = 0;
  virtual Turn turn() const { return Turn::other; }
  Job* next = nullptr;
  bool queued = false;  // in jobs_; guarded by jobs_mutex_
};

// In order of arrival; owns no job.
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
  // Returns nullptr if the list is empty.
  Job* pop() {
    Job* const job = first_;
    if (job == nullptr) return nullptr;
    first_ = job->next;
    if (first_ == nullptr) last_ = &first_;
    --size_;
    return job;
  }
  // Returns whether the job was in the list.
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

// A job that is notified when a copy ends.
struct Copying : Job {
  // Makes the end of `transfer` call copied(). If there is no memory for that, a job tries again.
  void hear(StoreCore& core, const Transfer& transfer) noexcept;
  virtual void copied(const Result<MoveStats>& outcome) noexcept = 0;

 protected:
  // For run(): returns whether the job only had to be notified.
  bool heard_late(StoreCore& core) noexcept;

 private:
  std::optional<Transfer> unheard_;
};

// Work that is done after the lock is released.
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

// An end that threads wait for and callbacks report.
struct Ending {
  Mutex mutex;
  std::atomic<bool> over{false};  // the outcome no longer changes
  std::vector<std::function<void()>> thens GUARDED_BY(mutex);
};

struct StoredState final : Job, std::enable_shared_from_this<StoredState> {
  StoreCore* core = nullptr;
  std::size_t left GUARDED_BY(ending.mutex) = 0;
  StoredCounts counts GUARDED_BY(ending.mutex);
  Ending ending;
  std::atomic<std::uint32_t> word{0};  // 1: over
  std::shared_ptr<const void> keep;    // see StoreRequest
  std::shared_ptr<StoredState> self;   // while it is a job
  void run() noexcept override;        // reports its end
};

// A block of a store, copied from the user's memory to a slot.
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
  bool reads = false;        // it is in that list; guarded by the store's lock, as the list is
  Entry* entry = nullptr;
  unsigned tier = 0;
  std::uint32_t slot = 0;
  std::size_t position = 0;
  std::optional<std::uint64_t> since;  // see StoreCore::use()
  // The slot of the first tier of CPUs that will hold the block.
  std::optional<std::uint32_t> kept;
  // Memory through which the block passes, if any: that slot, or `passage`.
  Extent through;
  std::uint32_t in_passage = 0;     // its number in `passage`
  std::atomic<bool> failed{false};  // damaged, or not copied
};

// A layer of a block that a load does not read itself, because another load reads or has it.
struct Follower {
  LoadGroup* group = nullptr;
  unsigned item = 0;
  unsigned layer = 0;
  unsigned theirs = 0;  // the block's number in the load that reads or has it
  bool late = false;    // the bytes are there already: with `leader`, or in memory
  bool delivered = false;
  std::shared_ptr<LoadState> leader;  // kept until the bytes are taken
  // The group whose list has it. It, `next` and `at` are guarded by joins_mutex_.
  LoadGroup* reading = nullptr;
  Follower* next = nullptr;
  Follower** at = nullptr;
};

// Groups of loads that a deadline makes urgent, by that time.
using Due = std::multimap<Nanoseconds, std::pair<std::weak_ptr<LoadState>, unsigned>>;

// The part of a load whose end is reported together: one layer, or all.
struct LoadGroup final : Copying {
  LoadState* load = nullptr;
  unsigned first = 0;
  unsigned layers = 0;
  std::vector<unsigned> owners;                         // the item of each pair in flight
  void (StoreCore::*then)(LoadGroup&, bool) = nullptr;  // the continuation; whether all succeeded
  std::atomic<bool> wanted{false};                      // all its copies have priority demand
  Priority until_wanted = Priority::demand;             // constant once it has begun
  std::optional<Due::iterator> due;                     // guarded by the store's lock
  bool started = false;
  // Included in reading_bytes_ (StoreOptions::load_ahead); guarded by turns_mutex_.
  bool reading = false;
  std::vector<bool> own;            // by at(): layers that it reads or copies itself
  std::vector<Follower> following;  // by item and layer; replaced under joins_mutex_
  // Parts that have not ended: followed layers, the transfer, and the call that starts it.
  std::atomic<std::size_t> pending{2};
  std::atomic<bool> alone{false};  // some layers were not delivered: it reads them again
  unsigned rounds = 0;             // how many times that happened
  bool joined = false;             // join() has been called in this round
  bool given_up = false;           // constant once it has started
  enum class Sharing : std::uint8_t { not_yet, open, done };  // done: read, or failed
  Sharing sharing = Sharing::not_yet;  // guarded by joins_mutex_, as the two below
  Follower* followers = nullptr;       // the followers in other loads
  std::uint64_t waits = 0;             // bytes of the largest group that it waits for, or its own
  Transfer moving GUARDED_BY(ending.mutex);
  Status outcome GUARDED_BY(ending.mutex);
  Ending ending;
  void run() noexcept override;
  Turn turn() const override;
  void copied(const Result<MoveStats>& moved) noexcept override;
  Priority priority() const { return wanted.load() ? Priority::demand : until_wanted; }
  std::size_t at(unsigned item, unsigned layer) const { return item * layers + layer - first; }
  // Returns nullptr if the group reads the layer itself.
  Follower* followed(unsigned item, unsigned layer) noexcept;
};

struct LoadState final : Job, std::enable_shared_from_this<LoadState> {
  StoreCore* core = nullptr;
  Extent into;
  LoadOptions options;
  Nanoseconds asked{0};  // the time of the call; deadlines count from it
  std::vector<LoadItem> items;
  std::vector<LoadGroup> groups;
  // Memory for blocks whose checksums CPUs compare. Its order is layer after layer if they are read
  // so: in order of blocks, the first layer would touch every huge page, which the kernel clears
  // first (200 ms per GiB).
  std::unique_ptr<Buffer> passage;
  std::uint32_t passing = 0;        // blocks in `passage`
  std::shared_ptr<LoadState> self;  // while it is a job
  void run() noexcept override;     // releases `passage`
  std::size_t next_group = 0;       // the next group in line; guarded by turns_mutex_
  std::atomic<std::size_t> leading{0};
  std::atomic<bool> cancelled{false};
  // Held by loads that take bytes from the memory they pass through.
  Mutex sharing;
  bool over GUARDED_BY(sharing) = false;  // the bytes are gone
  std::atomic<std::size_t> left{0};       // groups that have not ended
  std::atomic<std::uint32_t> word{0};     // changes whenever a group ends

  LoadGroup& group_of(unsigned layer) { return groups.size() == 1 ? groups[0] : groups[layer]; }
};

// Overwrites the headers of slots in the folder whose blocks were removed or not written. A batch
// is overwritten before its slots are free. A store has one Unlisting, started whenever there is
// work.
struct Unlisting final : Copying {
  static constexpr std::size_t kMost = 64;
  struct Slot {
    std::uint32_t number = 0;
    bool failed = false;  // a block was not written, and has been counted
  };
  StoreCore* core = nullptr;
  std::vector<Slot> slots;  // has capacity for all slots; guarded by the store's lock
  std::array<Slot, kMost> batch{};
  std::size_t size = 0;  // of the batch
  bool busy = false;     // guarded by the store's lock
  void run() noexcept override;
  void copied(const Result<MoveStats>& outcome) noexcept override;
};

// A load or store that has not begun, because the user's stream has not reached its point.
struct Parked {
  std::unique_ptr<cuda::StreamPoint> point;
  Nanoseconds until{0};
  std::shared_ptr<LoadState> load;  // either this or `arrivals`
  std::shared_ptr<StoredState> stored;
  std::unique_ptr<JobList> arrivals = std::make_unique<JobList>();  // blocks of the store
  Status outcome;
};

}  // namespace headrace::kvcache
