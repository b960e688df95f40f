// SPDX-License-Identifier: Apache-2.0
// Writes blocks that are only in memory to the folder: flush(), and while no load runs.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
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
    std::vector<Key> arriving;  // since flush() began, and still arriving
    std::vector<Key> keys;      // blocks to write once `arriving` is empty; the next is last
    std::uint64_t failed = 0;   // failures counted before flush() began
    std::uint64_t changes = 0;  // of the list, when none was being written
    bool listed = false;        // whether `keys` are known
  };
  Status flush_all(Nanoseconds timeout, const Stop& stop);
  // Returns true, and sets `keys`, once no block of `arriving` is arriving any more.
  bool list(Work& work);
  // Starts writing the next blocks. Returns false if none is left or being written.
  bool write_some(Work& work);
  // The result of a flush() with `left` blocks to write; `failed` were counted before it began.
  Status outcome(std::size_t left, std::uint64_t failed, Status status);
  // Makes the first `changes` of the list durable. Requires: their headers are overwritten.
  Status sync(std::uint64_t changes);

  StoreCore& store_;
  // In order of arrival; the oldest is forgotten if it is longer than memory has slots.
  std::deque<Key> when_idle_ GUARDED_BY(kTable);
  std::atomic<bool> any_when_idle_{false};
  std::uint64_t synced_ GUARDED_BY(kTable) = 0;  // changes of the list that are durable
  std::atomic<std::uint32_t> word_{0};           // changes with each progress
};

}  // namespace headrace::kvcache
