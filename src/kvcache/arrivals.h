// SPDX-License-Identifier: Apache-2.0
// Stores: blocks that arrive from the user's memory in the first tier. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "kvcache/state/epochs.h"
#include "kvcache/state/jobs.h"
#include "kvcache/state/table.h"
#include "kvcache/state/user_memory.h"

namespace headrace::kvcache {

// How long a block is tried on further disks, counted from the first that refuses it.
inline constexpr Nanoseconds kTryDisks = std::chrono::minutes{1};

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
  UserBlock from;
  Layout layout = Layout::page_first;
  Priority priority = Priority::migration;
  std::uint8_t side = 0;  // of Arrivals::mark()
  // For a folder as the only tier: memory in which CPUs see the block, if they do not see the
  // user's or its layers lie apart.
  std::shared_ptr<const Object> passage;
  bool gathering = false;               // the copy to `passage` is in flight
  bool writing = false;                 // the copy to a folder is in flight
  std::uint64_t mends = 0;              // Folders::mends() before it
  std::optional<Nanoseconds> last_try;  // kTryDisks after a disk refused it
  void run() noexcept override;         // starts its copy
  void copied(const Result<MoveStats>& outcome) noexcept override;
};

class Arrivals {
 public:
  explicit Arrivals(StoreCore& store) : store_(store) {}

  // As that of Store.
  Result<Stored> store(std::span<const Key> keys, std::span<const Extent> from,
                       const StoreRequest& request);
  // Gives slots to blocks that wait for one, and evicts blocks for the rest. Each change of the
  // table that may free a slot ends with this call.
  void place(Later& later) REQUIRES(kTable);
  bool waiting() const REQUIRES(kTable) { return !waiting_.empty(); }
  // Whether the next block waits for several slots, which others must not take one by one.
  bool gathers() const REQUIRES(kTable);
  Bytes in_flight() const REQUIRES(kTable) { return Bytes{in_flight_}; }
  // For flush(): whether all blocks have arrived, or will not, that store() took before mark().
  std::uint64_t mark() const REQUIRES(kTable) { return arriving_.mark(); }
  bool passed(std::uint64_t mark) REQUIRES(kTable) { return arriving_.passed(mark); }
  // The stream that these blocks waited for has reached its point. If not `well`, they fail.
  void resume(JobList& arrivals, bool well, Later& later) REQUIRES(kTable);

  void start(Arrival& arrival) noexcept;
  // Ends the copy. `why`: the error if it failed.
  void stored(std::unique_ptr<Arrival> arrival, const Error* why) noexcept;
  // A block of the store has arrived, or not. Called at the end of its copy, or for
  // WriteBack::stored once the folder has it.
  void arrived(StoredState& state, std::uint64_t bytes, std::size_t StoredCounts::* what,
               Later& later) REQUIRES(kTable);
  // Counts the block for the stores that found it arriving: present if it has arrived, else `what`.
  void count_followers(const Key& key, std::size_t StoredCounts::* what, Later& later)
      REQUIRES(kTable);

 private:
  // The user's memory of the block: one part, or its layers.
  std::vector<Fragment> parts_of(const Arrival& arrival) const;
  // The copies of the block to its slots.
  Result<std::vector<MovePair>> pairs_to_memory(const Arrival& arrival);
  // The same for a folder, or the copies by which the block is gathered first.
  Result<std::vector<MovePair>> pairs_to_folder(Arrival& arrival);
  // Whether a store ends when the folder has its blocks (WriteBack::stored).
  bool ends_with_write() const;
  bool too_much(std::uint64_t bytes) const REQUIRES(kTable);
  // A block has an entry already. Returns how it counts, or nullptr if that is not known yet.
  std::size_t StoredCounts::* meet(Entry& entry, std::uint64_t bytes,
                                   const std::shared_ptr<StoredState>& state) REQUIRES(kTable);
  // Makes an entry that waits for its block. Returns nullptr if the block is refused.
  Arrival* expect(const Key& key, std::uint64_t bytes, const std::shared_ptr<StoredState>& state)
      REQUIRES(kTable);
  // The arrival's copy has ended.
  void settle(std::unique_ptr<Arrival> arrival, const Error* why, Later& later) REQUIRES(kTable);
  // After a write that failed: lets the block wait for another slot, or returns false.
  bool place_again(Arrival& arrival, const Error& why) REQUIRES(kTable);
  // The arrival is given up before its copy.
  void give_up(std::unique_ptr<Arrival> arrival, std::size_t StoredCounts::* what, Later& later)
      REQUIRES(kTable);
  void count(StoredState& state, std::size_t StoredCounts::* what, std::size_t blocks, Later& later)
      REQUIRES(kTable);

  void wait_for_slots(Arrival& arrival) REQUIRES(kTable);
  bool writes_enough() const REQUIRES(kTable);

  StoreCore& store_;
  JobList waiting_ GUARDED_BY(kTable);                // arrivals without slots, which the list owns
  std::size_t waiting_slots_ GUARDED_BY(kTable) = 0;  // for them
  std::uint64_t in_flight_ GUARDED_BY(kTable) = 0;
  // Arrivals with slots, whose copies have not ended.
  std::size_t copying_ GUARDED_BY(kTable) = 0;
  std::uint64_t copying_bytes_ GUARDED_BY(kTable) = 0;
  Epochs arriving_ GUARDED_BY(kTable);
  using Followers =
      std::unordered_multimap<Key, std::shared_ptr<StoredState>, std::size_t (*)(const Key&)>;
  // Stores that wait for blocks of another store, by key.
  Followers followers_ GUARDED_BY(kTable){0, [](const Key& key) -> std::size_t { return key.low; }};
};

}  // namespace headrace::kvcache
