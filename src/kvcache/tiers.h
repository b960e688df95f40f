// SPDX-License-Identifier: Apache-2.0
// Copies of blocks between tiers: demotion, promotion, and writing by flush().
//
// CPUs compute checksums. Bytes between a folder and memory that CPUs do not address pass through
// memory that they address: a slot of the first such tier, or memory allocated for the operation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kvcache/state/jobs.h"
#include "kvcache/state/table.h"

namespace headrace::kvcache {

struct StoredState;
struct TierCopy;

// Decides which blocks are copied to which tier. Works under the table's lock.
class Tiers {
 public:
  explicit Tiers(StoreCore& store) : store_(store) {}

  // Whether a block may be lost for the slot requested: its only copy is dropped if it cannot be
  // written to a slower tier.
  enum class Loss : std::uint8_t { never, allowed };
  // Returns the first of `count` slots that a block can fill now. Evicts blocks if too few are
  // free.
  std::optional<std::uint32_t> take_slots(unsigned tier, std::size_t count, Loss loss)
      REQUIRES(kTable);
  // Evicts blocks until each tier of memory has the slots that it keeps free, and the first tier
  // has `waiting` more, or until the evicted blocks are on their way.
  void evict_for(std::size_t waiting) REQUIRES(kTable);
  // The most slots whose blocks are demoted from a tier, written by flush(), or promoted at a time.
  std::size_t most_moving() const;

  // The fate of the source of a copy.
  // idle: it stays, and nobody waits for the copy.
  enum class Source : std::uint8_t { stays, idle, leaves, leaves_if_copied };
  // Starts copying `copy` to these slots of another tier. Returns false without memory.
  bool send(Copy& copy, unsigned tier, unsigned to, std::uint32_t slot, Source source,
            std::shared_ptr<StoredState> for_store = nullptr) REQUIRES(kTable);
  // Starts writing a ready copy to the folder; it stays. `for_store`: a store that ends with it; if
  // there is none, no block is evicted for it. Returns false if there is no slot or no memory.
  bool write(Copy& copy, unsigned tier, std::shared_ptr<StoredState> for_store) REQUIRES(kTable);
  // Ends such a copy. `why`: the error if it failed.
  void sent(TierCopy& copy, const Error* why) noexcept;
  // Starts a promotion of the block, which was used again, to the fastest tier that may have it.
  // `since`: see BlockTable::use().
  void promote(Entry& entry, std::optional<std::uint64_t> since) REQUIRES(kTable);

 private:
  // How many slots of the tier are kept free.
  std::size_t reserve_of(unsigned tier) const;
  // Evicts blocks until `wanted` slots are free or will be.
  void evict(unsigned tier, std::size_t wanted, Loss loss) REQUIRES(kTable);
  // For a block of `count` slots.
  bool evict_one(unsigned tier, std::size_t count, Loss loss) REQUIRES(kTable);
  // Starts copying `copy` to a slower tier that has a slot for it.
  bool demote(Copy& copy, unsigned tier, Loss loss) REQUIRES(kTable);
  bool may_promote(const Entry& entry, unsigned to, std::uint64_t since) REQUIRES(kTable);
  void settle(TierCopy& copy, const Error* why, Later& later) REQUIRES(kTable);

  StoreCore& store_;
  std::size_t promoting_ GUARDED_BY(kTable) = 0;  // slots
};

// The copy of one block from a tier to another, with its checksums if one of them is a folder.
// Deletes itself at its end.
struct TierCopy final : Copying {
  StoreCore* core = nullptr;
  Entry* entry = nullptr;
  unsigned from = 0;
  unsigned to = 0;
  std::uint32_t from_slot = 0;  // the first
  std::uint32_t to_slot = 0;    // the first
  Tiers::Source source = Tiers::Source::stays;
  // Memory in which CPUs see the block, if neither end is such.
  std::shared_ptr<const Object> passage;
  bool fetching = false;                   // the copy to `passage` is in flight
  bool writing = false;                    // the copy to a folder is in flight
  std::uint64_t mends = 0;                 // Folders::mends() before it
  std::shared_ptr<StoredState> for_store;  // the store that ends with it, if any

  bool promotes() const { return to < from; }
  void run() noexcept override;
  void copied(const Result<MoveStats>& outcome) noexcept override;

 private:
  // Copies the block to memory that CPUs address; then run() is called again.
  void fetch() noexcept;
  // Copies it to the other tier. `seen`: it does not pass through `passage`.
  void send(bool seen);
  bool verified(const Folders& folder) const;
  void end(const Error* why) noexcept;
};

}  // namespace headrace::kvcache
