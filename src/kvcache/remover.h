// SPDX-License-Identifier: Apache-2.0
// Removal of blocks, and of their headers in the folder. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvcache/state/jobs.h"
#include "kvcache/state/table.h"

namespace headrace::kvcache {

// Overwrites the headers of slots in the folder whose blocks were removed or not written. A batch
// is overwritten before its slots are free. One job does it, whenever there is work. A header that
// cannot be overwritten is tried again after kRest, and by flush().
class Remover final : public Unlister, private Copying {
 public:
  explicit Remover(StoreCore& store) : store_(store) {}
  // Requires: the table is open.
  void open();

  // As those of Store.
  Result<std::size_t> remove(std::span<const Key> keys);
  Result<std::size_t> clear();

  void unlist(Slot slot) noexcept override REQUIRES(kTable);
  // Starts to overwrite the headers again that could not be overwritten.
  void retry() noexcept REQUIRES(kTable);
  // The same, kRest after the last failure.
  void retry_due() noexcept;
  // How many removed blocks have a header that could not be overwritten.
  std::size_t failed() const REQUIRES(kTable) {
    return static_cast<std::size_t>(std::ranges::count(failed_, false, &Slot::failed));
  }
  // The number of calls of remove() and clear(), plus headers to overwrite. A removed block may
  // have left its slot before, whose header is then overwritten by the next block's.
  std::uint64_t list_changes() const REQUIRES(kTable) { return list_changes_; }

 private:
  static constexpr std::size_t kMost = 64;

  void unlist_free(std::uint32_t slot) noexcept REQUIRES(kTable);
  // Returns false if the block was removed before.
  bool remove(Entry& entry) REQUIRES(kTable);
  void push(const Slot& slot) noexcept REQUIRES(kTable);
  void start() noexcept REQUIRES(kTable);
  // Takes the next batch. Returns false if there is none.
  bool next() noexcept;
  void run() noexcept override;
  void copied(const Result<MoveStats>& outcome) noexcept override;

  StoreCore& store_;
  // A ring with a place for each slot, so that the headers that wait longest are next.
  std::vector<Slot> slots_ GUARDED_BY(kTable);
  std::size_t first_ GUARDED_BY(kTable) = 0;
  std::size_t waiting_ GUARDED_BY(kTable) = 0;
  std::vector<Slot> failed_ GUARDED_BY(kTable);  // has capacity for all slots
  std::atomic<bool> any_failed_{false};
  Nanoseconds retry_at_ GUARDED_BY(kTable){0};
  std::uint64_t list_changes_ GUARDED_BY(kTable) = 0;
  bool busy_ GUARDED_BY(kTable) = false;
  std::array<Slot, kMost> batch_{};  // of the job, as its size
  std::size_t size_ = 0;
  std::optional<Transfer> copy_;  // of the batch
};

}  // namespace headrace::kvcache
