// SPDX-License-Identifier: Apache-2.0
// A load: its blocks, and the groups of layers that are read and reported together.
//
// Thread-compatible, except where a lock or an atomic is named at a field.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/buffer.h"
#include "kvcache/state/jobs.h"
#include "kvcache/state/table.h"
#include "kvcache/state/user_memory.h"

namespace headrace::kvcache {

class Loads;
struct LoadGroup;
struct LoadState;

// One block of a load. Its parts are read, compared and shared one by one: its layers, or its slots
// if blocks have any size.
struct LoadItem {
  LoadState* load = nullptr;
  LoadItem* next = nullptr;  // of Entry::readers
  bool reads = false;        // it is in that list; guarded by the table's lock, as the list is
  Entry* entry = nullptr;
  unsigned tier = 0;
  std::uint32_t slot = 0;                   // the first
  std::vector<std::uint32_t> more_slots{};  // of parts 1 and on, if blocks have any size
  unsigned parts = 0;
  std::uint64_t bytes = 0;
  UserBlock user;
  std::optional<std::uint64_t> since;  // see BlockTable::use()
  // The first slot in the first tier of CPUs that will hold the block.
  std::optional<std::uint32_t> kept;
  std::vector<std::uint32_t> more_kept{};  // as more_slots
  // Memory through which the block passes, if any: its first slot there, or `passage`.
  Extent through;
  std::uint32_t in_passage = 0;     // its first slot in `passage`
  std::atomic<bool> failed{false};  // damaged, or not copied

  std::uint32_t slot_of(unsigned part) const {
    return part == 0 || more_slots.empty() ? slot : more_slots[part - 1];
  }
  // The block of the other item is this one's from now on. Requires: neither is pinned.
  void take_place_of(LoadItem& other) {
    user = other.user;
    bytes = other.bytes;
    parts = other.parts;
    more_slots.swap(other.more_slots);
    more_kept.swap(other.more_kept);
  }
};

// A part of a block that a load does not read itself, because another load reads or has it.
struct Follower {
  LoadGroup* group = nullptr;
  unsigned item = 0;
  unsigned layer = 0;
  unsigned theirs = 0;  // the block's number in the load that reads or has it
  bool late = false;    // the bytes are there already: with `leader`, or in memory
  bool delivered = false;
  std::shared_ptr<LoadState> leader;  // kept until the bytes are taken
  // The group whose list has it. It, `next` and `at` are guarded by the
  // lock of Coalescer.
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
  unsigned layers = 0;                              // of the largest block, if these are parts
  std::uint64_t bytes = 0;                          // of all its blocks
  std::vector<unsigned> owners;                     // the item of each pair in flight
  void (Loads::*then)(LoadGroup&, bool) = nullptr;  // the continuation; whether all succeeded
  std::atomic<bool> wanted{false};                  // all its copies have priority demand
  Priority until_wanted = Priority::demand;         // constant once it has begun
  std::optional<Due::iterator> due;                 // guarded by the lock of Loads
  bool started = false;
  // Has a turn (StoreOptions::load_ahead); guarded by the lock of LoadQueue.
  bool reading = false;
  std::vector<bool> own;            // by at(): layers that it reads or copies itself
  std::vector<Follower> following;  // by item and layer; replaced under the lock of Coalescer
  // Parts that have not ended: followed layers, the transfer, and the call that starts it.
  std::atomic<std::size_t> pending{2};
  std::atomic<bool> alone{false};  // some layers were not delivered: it reads them again
  unsigned rounds = 0;             // how many times that happened
  bool joined = false;             // Coalescer::join() has been called in this round
  bool given_up = false;           // constant once it has started
  // Layers in the user's memory that do not fit their checksums: read once more, into `apart`.
  struct Doubt {
    unsigned item;
    unsigned layer;
  };
  std::vector<Doubt> doubts;
  std::shared_ptr<const Object> apart;
  bool decided = false;                                       // the doubts are decided
  enum class Sharing : std::uint8_t { not_yet, open, done };  // done: read, or failed
  Sharing sharing = Sharing::not_yet;  // guarded by the lock of Coalescer, as the two below
  Follower* followers = nullptr;       // the followers in other loads
  std::uint64_t waits = 0;             // bytes of the largest group that it waits for, or its own
  Transfer moving GUARDED_BY(ending.mutex);
  Status outcome GUARDED_BY(ending.mutex);
  Ending ending;
  void run() noexcept override;
  Turn turn() const override;
  void copied(const Result<MoveStats>& moved) noexcept override;
  Priority priority() const { return wanted.load() ? Priority::demand : until_wanted; }
  unsigned end_of(const LoadItem& item) const { return std::min(first + layers, item.parts); }
  std::size_t at(unsigned item, unsigned layer) const { return item * layers + layer - first; }
  // The copy in flight, if any.
  Transfer transfer() noexcept;
  // Keeps the first error as the outcome.
  void fail(const Error& error) noexcept;
  // Returns nullptr if the group reads the layer itself.
  Follower* followed(unsigned item, unsigned layer) noexcept;
};

struct LoadState final : Job, std::enable_shared_from_this<LoadState> {
  StoreCore* core = nullptr;
  Extent into;  // the user's memory, or that of the first block
  LoadOptions options;
  unsigned layers = 0;               // as the user sees them
  Nanoseconds asked{0};              // the time of the call; deadlines count from it
  std::vector<LoadItem> items;       // the blocks that are loaded
  std::vector<std::size_t> numbers;  // of each item: its block's number in the call; ascending
  std::vector<LoadGroup> groups;
  // Memory for blocks whose checksums CPUs compare. Its order is layer after layer if they are read
  // so: in order of blocks, the first layer would touch every huge page, which the kernel clears
  // first (200 ms per GiB).
  std::shared_ptr<const Object> passage;
  std::uint32_t passing = 0;        // slots in `passage`
  std::shared_ptr<LoadState> self;  // while it is a job
  bool begun = false;
  void run() noexcept override;  // begins the load; later releases `passage`
  Turn turn() const override;
  std::size_t next_group = 0;  // the next group in line; guarded by the lock of LoadQueue
  std::atomic<std::size_t> leading{0};
  std::atomic<bool> cancelled{false};
  // Held by loads that take bytes from the memory they pass through. A leaf: see table.h.
  Mutex sharing;
  bool over GUARDED_BY(sharing) = false;  // the bytes are gone
  std::atomic<std::size_t> left{0};       // groups that have not ended
  std::atomic<std::uint32_t> word{0};     // changes whenever a group ends

  // Whether its layers wait for a turn (LoadQueue).
  bool has_turns() const {
    return options.priority == Priority::demand && options.deadlines.empty();
  }
  // No other load takes bytes from its memory any more.
  void close_sharing() noexcept;
  LoadGroup& group_of(unsigned layer) { return groups.size() == 1 ? groups[0] : groups[layer]; }
};

}  // namespace headrace::kvcache
