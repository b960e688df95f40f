// SPDX-License-Identifier: Apache-2.0
// Loads. A group of a load (one layer, or all) is read, verified if it comes from a folder, and
// copied on if it passed through a slot of the first tier, which then keeps the block. Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kvcache/state/load_state.h"

namespace headrace::kvcache {

// How many times a load starts and follows other loads for missing bytes; then it reads them
// itself.
inline constexpr unsigned kMostRounds = 2;

class Loads {
 public:
  explicit Loads(StoreCore& store) : store_(store) {}

  // As that of Store.
  Result<Load> load(std::span<const Key> keys, std::span<const Extent> into,
                    const LoadOptions& options);
  // The stream that the load waited for has reached its point, or there was none.
  void begin(LoadState& load) noexcept;
  // Ends the load; nothing of it is copied.
  void give_up(LoadState& load, const Error& why) noexcept;
  void cancel(LoadState& load);
  void cancel_all();
  // Whether there are no loads. A load ends after its blocks are unpinned.
  bool none();
  // Makes its copies in flight, or its place in line, more urgent.
  void make_urgent(LoadGroup& group);
  // Makes groups urgent whose deadline is near. Returns the time until the next.
  Nanoseconds make_due_urgent();

  // The steps of a group: it is started, verified, and perhaps read again.
  void start(LoadGroup& group) noexcept;
  void verify(LoadGroup& group) noexcept;
  // Starts the group again, in its turn, for bytes that other loads did not deliver.
  void read_again(LoadGroup& group) noexcept;
  // Counts one pending part less; after the last, continues the group.
  void settle(LoadGroup& group) noexcept;

  bool from_folder(const LoadItem& item) const;
  // The block is not loaded. `read`: the error is of the bytes in its tier. `torn`: these could be
  // read, and are not what was written.
  void fail_item(LoadGroup& group, unsigned item, const Error& error, bool read,
                 bool torn = false) noexcept;
  // Where a layer of a block is put first: the user's memory, or memory that it passes through.
  Extent landing(const LoadState& load, unsigned item, unsigned layer) const noexcept;

 private:
  // loads.cpp
  std::shared_ptr<LoadState> prepare(std::size_t blocks, std::span<const Extent> into,
                                     const LoadOptions& options) const;
  // Pins the blocks and begins the operations, or none. Errors: absent; cancelled: the store is
  // closed.
  Status pin_all(std::span<const Key> keys, LoadState& load);
  // The deadlines of a load that has not begun. Sets the urgency of its groups before them.
  static Due due_of(const std::shared_ptr<LoadState>& load);
  std::shared_ptr<LoadState> one_not_cancelled();
  // Slots of the first tier of CPUs for blocks from the folder, which stay there.
  void keep(LoadState& load) noexcept;
  // Allocates memory for blocks that pass through memory of CPUs and have no slot there.
  void take_passage(LoadState& load) noexcept;
  void forget(LoadState& load);
  void ended(LoadState& load, Later& later);
  // Starts layers of loads in line, as far as they may be read now. `later`: as jobs. If not `all`,
  // layers that read nothing keep their turn until they start, so that the call is short.
  void start_next(bool later, bool all = true) noexcept;

  // load_copies.cpp
  // The group copies nothing, and ends once no other load copies for it.
  void give_up(LoadGroup& group, const Error& why, bool read) noexcept;
  void start_copies(LoadGroup& group);
  void plan_copies(LoadGroup& group, std::vector<MovePair>& pairs) const;
  void plan_copy(LoadGroup& group, unsigned item, unsigned first, unsigned layers,
                 std::vector<MovePair>& pairs) const;
  // The bytes from `layer` on in the memory that a block passes through. Requires: `bytes` are of
  // one layer, if that memory is ordered by layer, and of one part.
  Extent passing(const LoadState& load, const LoadItem& item, unsigned layer,
                 Bytes bytes) const noexcept;
  void listen_to(LoadGroup& group, std::span<const MovePair> pairs,
                 void (Loads::*then)(LoadGroup&, bool));
  void arrived(LoadGroup& group, bool well) noexcept;
  // The group has been read, or will not be: gives its turn to another.
  void read(LoadGroup& group) noexcept;
  // Reads the layers that are in doubt into memory that no user can have changed.
  void read_apart(LoadGroup& group);
  void was_read_apart(LoadGroup& group, bool well) noexcept;
  void pass_on(LoadGroup& group);
  void passed_on(LoadGroup& group, bool well) noexcept;
  void finish(LoadGroup& group) noexcept;
  // Marks the failed parts of a transfer. `read`: the bytes came from the tiers of the blocks.
  void note_failures(LoadGroup& group, bool read) noexcept;
  // Whether a failed read of the item means that its copy may be lost: the copy is on SSD, or in
  // the memory of a GPU other than the destination.
  bool may_be_lost(const LoadGroup& group, const LoadItem& item) const;

  StoreCore& store_;

  Mutex mutex_;
  std::unordered_map<LoadState*, std::shared_ptr<LoadState>> loads_ GUARDED_BY(mutex_);
  Due due_ GUARDED_BY(mutex_);
};

}  // namespace headrace::kvcache
