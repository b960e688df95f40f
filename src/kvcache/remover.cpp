// SPDX-License-Identifier: Apache-2.0
#include "kvcache/remover.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {

void Remover::open() {
  const TableLock lock(store_.table);
  if (!store_.table.has_folder()) return;
  slots_.resize(store_.table.last().slots);
  failed_.reserve(store_.table.last().slots);
}

bool Remover::remove(Entry& entry) {
  if (std::exchange(entry.removed, true)) return false;
  store_.table.sharing.show(entry);
  store_.table.pin(entry);  // so that it stays until all its copies were visited
  for (unsigned tier = 0; tier < store_.table.tiers(); ++tier) {
    Copy& copy = entry.copies[tier];
    if (copy.state == Copy::State::ready) store_.table.withdraw(copy, tier);
  }
  store_.table.unpin(entry);
  return true;
}

Result<std::size_t> Remover::remove(std::span<const Key> keys) {
  HEADRACE_TRY_STATUS(store_.origin.check(kTheStore));
  Later later;
  const TableLock lock(store_.table);
  HEADRACE_TRY_STATUS(store_.check_open());
  ++list_changes_;
  std::size_t removed = 0;
  for (const Key& key : keys) {
    Entry* const entry = store_.table.find(key);
    if (entry != nullptr && remove(*entry)) ++removed;
    // A free slot may have the header of a block that left or never arrived. The next process would
    // find it.
    store_.table.last().free.take_listed(
        key, [&](std::uint32_t slot) REQUIRES(kTable) { unlist_free(slot); });
  }
  store_.arrivals.place(later);
  return removed;
}

Result<std::size_t> Remover::clear() {
  HEADRACE_TRY_STATUS(store_.origin.check(kTheStore));
  Later later;
  const TableLock lock(store_.table);
  HEADRACE_TRY_STATUS(store_.check_open());
  ++list_changes_;
  std::size_t removed = 0;
  auto& entries = store_.table.entries();
  for (auto next = entries.begin(); next != entries.end();) {
    if (remove((next++)->second)) ++removed;
  }
  store_.table.last().free.take_listed([&](std::uint32_t slot)
                                           REQUIRES(kTable) { unlist_free(slot); });
  store_.arrivals.place(later);
  return removed;
}

void Remover::unlist_free(std::uint32_t slot) noexcept {
  unlist({.number = slot, .side = store_.table.last().fills.begin()});
}

void Remover::unlist(Slot slot) noexcept {
  ++store_.table.last().filling;  // flush() waits for it
  ++list_changes_;
  push(slot);
  start();
}

void Remover::retry() noexcept {
  Tier& folder = store_.table.last();
  if (failed_.empty() || store_.table.closing) return;
  for (Slot& slot : failed_) {
    ++folder.filling;
    ++folder.unlisting;
    slot.side = folder.fills.begin();
    push(slot);
  }
  failed_.clear();
  folder.stuck = 0;
  any_failed_ = false;
  start();
}

void Remover::retry_due() noexcept {
  if (!any_failed_) return;
  const TableLock lock(store_.table);
  if (store_.mover.clock().now() >= retry_at_) retry();
}

void Remover::start() noexcept {
  if (std::exchange(busy_, true)) return;
  store_.jobs.begin_operation();
  store_.jobs.enqueue(*this);
}

void Remover::push(const Slot& slot) noexcept {
  DCHECK(waiting_ < slots_.size());
  slots_[(first_ + waiting_++) % slots_.size()] = slot;
}

bool Remover::next() noexcept {
  const TableLock lock(store_.table);
  size_ = std::min(waiting_, kMost);
  for (std::size_t i = 0; i < size_; ++i) batch_[i] = slots_[(first_ + i) % slots_.size()];
  if (size_ > 0) first_ = (first_ + size_) % slots_.size();
  waiting_ -= size_;
  busy_ = size_ > 0;
  return busy_;
}

void Remover::run() noexcept {
  if (heard_late(store_.jobs)) return;
  if (!next()) return store_.jobs.end_operation();
  Folders& folder = *store_.table.last().folder;
  std::array<MovePair, kMost> pairs;
  for (std::size_t i = 0; i < size_; ++i) {
    folder.blank(batch_[i].number);
    pairs[i] = folder.header(batch_[i].number);
  }
  const Transfer copy =
      store_.mover.copy(std::span(pairs).first(size_), {.priority = Priority::migration});
  copy_ = copy;
  hear(store_.jobs, copy);
}

void Remover::copied(const Result<MoveStats>& outcome) noexcept {
  {
    Later later;
    const TableLock lock(store_.table);
    Tier& folder = store_.table.last();
    for (std::size_t i = 0; i < size_; ++i) {
      const Slot& slot = batch_[i];
      --folder.filling;
      if (slot.retried) --folder.unlisting;
      folder.fills.end(slot.side);
      const std::optional<Status> written = copy_->poll(i);
      if (outcome || (written && *written)) {
        folder.free_slot(slot.number);
        continue;
      }
      // Its block may come back: the slot is not free before its header is overwritten.
      if (!slot.failed && !slot.retried) ++store_.table.counts().failed;
      failed_.push_back({.number = slot.number, .failed = slot.failed, .retried = true});
      retry_at_ = store_.mover.clock().now() + kRest;
      any_failed_ = true;
    }
    folder.stuck = failed_.size();
    if (!outcome) store_.table.note(outcome.error());
    copy_.reset();
    store_.arrivals.place(later);
  }
  store_.flusher.progressed();
  store_.jobs.enqueue(*this);
}

}  // namespace headrace::kvcache
