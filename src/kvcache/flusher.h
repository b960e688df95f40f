// SPDX-License-Identifier: Apache-2.0
// Writes blocks that are only in memory to the folder: flush(), and while no load runs.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kvcache/state/table.h"

namespace headrace::kvcache {

// The interval at which flush() and close() call `stop`.
inline constexpr Nanoseconds kAskToStop = std::chrono::milliseconds{50};
using Stop = std::function<bool()>;  // may be empty: never

class Flusher {
 public:
  explicit Flusher(StoreCore& store) : store_(store) {}

  // Counts as an operation: close() waits until the flush sees that the store is closing.
  Status flush(Nanoseconds timeout, const Stop& stop);
  // A block has arrived in a tier, or will not: a flush() checks again.
  void progressed() noexcept;
  // The block is to be written while no load runs (WriteBack::idle).
  void expect_idle(const Key& key) noexcept REQUIRES(kTable);
  // Starts to write such blocks, if no load runs.
  void write_while_idle() noexcept;

 private:
  struct Work {
    std::uint64_t arrivals = 0;           // the mark of Arrivals when flush() began
    std::uint64_t failed = 0;             // failures counted before that
    bool listed = false;                  // whether `keys` are known
    std::vector<Key> keys;                // blocks to write; the next is last
    std::vector<Key> sent;                // blocks whose write has begun
    std::optional<std::uint64_t> writes;  // the mark of Tier::fills after the last write was sent
    std::uint64_t changes = 0;            // of the folder, at that mark
  };
  Status flush_all(Nanoseconds timeout, const Stop& stop);
  // Returns true, and sets `keys`, once the blocks have arrived that were stored before flush()
  // began.
  bool list(Work& work);
  // Starts writing the next blocks. Returns false once all have ended that can be written, and
  // all writes that began before them. Waits for no write that began later.
  bool write_some(Work& work);
  // Puts blocks back whose disk failed: another disk may have space for them.
  void send_again(Work& work) REQUIRES(kTable);
  // The result of a flush(). `left`: blocks without a slot; `failed`: counted before it began.
  Status outcome(std::span<const Key> left, std::uint64_t failed, Status status);
  // Makes the first `changes` of the folder durable. Requires: their writes have ended.
  Status sync(std::uint64_t changes);

  StoreCore& store_;
  // In order of arrival; the oldest is forgotten if it is longer than memory has slots.
  std::deque<Key> when_idle_ GUARDED_BY(kTable);
  std::atomic<bool> any_when_idle_{false};
  // Changes of the folder that are durable; empty: none of this process.
  std::optional<std::uint64_t> synced_ GUARDED_BY(kTable);
  std::atomic<std::uint32_t> word_{0};  // changes with each progress
};

}  // namespace headrace::kvcache
