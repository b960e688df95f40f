// SPDX-License-Identifier: Apache-2.0
// Removal of blocks, on request of the owner of the store.
#include <algorithm>

#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {

std::vector<bool> StoreCore::contains(std::span<const Key> keys) const {
  std::vector<bool> there(keys.size());
  if (!origin_.here()) return there;
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto found = entries_.find(keys[i]);
    there[i] = found != entries_.end() && found->second.fastest().has_value();
  }
  return there;
}

bool StoreCore::remove(Entry& entry) {
  if (std::exchange(entry.removed, true)) return false;
  pin(entry);  // so that it stays until all its copies were visited
  for (unsigned tier = 0; tier < tiers_.size(); ++tier) {
    if (entry.copies[tier].state == Copy::State::ready) withdraw(entry.copies[tier], tier);
  }
  unpin(entry);
  return true;
}

void StoreCore::withdraw(Copy& copy, unsigned index) {
  tiers_[index].order->remove(copy);
  ++tiers_[index].counts.dropped;
  if (copy.entry->pins > 0) {
    copy.state = Copy::State::damaged;
  } else {
    drop(copy, index);
  }
}

// A slot that is free, or set aside on a full disk, may have the header of a block that left or
// never arrived. The next process would find it.
void StoreCore::unlist_free(const std::function<bool(const Key&)>& gone) {
  Tier& last = tiers_.back();
  if (last.folder == nullptr) return;
  for (std::vector<std::uint32_t>* const slots : {&last.free, &last.disk.none}) {
    std::erase_if(*slots, [&](std::uint32_t slot) REQUIRES(mutex_) {
      const auto key = last.folder->listed(slot);
      if (!key || !gone(*key)) return false;
      unlist({.number = slot});
      return true;
    });
  }
}

Result<std::size_t> StoreCore::remove(std::span<const Key> keys) {
  std::vector<Key> sorted(keys.begin(), keys.end());
  std::ranges::sort(sorted);
  HEADRACE_TRY_STATUS(origin_.check(kTheStore));
  Later later;
  const MutexLock lock(mutex_);
  HEADRACE_TRY_STATUS(check_open());
  std::size_t removed = 0;
  for (const Key& key : sorted) {
    const auto found = entries_.find(key);
    if (found != entries_.end() && remove(found->second)) ++removed;
  }
  if (!sorted.empty()) {
    unlist_free([&](const Key& key) { return std::ranges::binary_search(sorted, key); });
  }
  place_pending(later);
  return removed;
}

Result<std::size_t> StoreCore::clear() {
  HEADRACE_TRY_STATUS(origin_.check(kTheStore));
  Later later;
  const MutexLock lock(mutex_);
  HEADRACE_TRY_STATUS(check_open());
  std::size_t removed = 0;
  for (auto next = entries_.begin(); next != entries_.end();) {
    if (remove((next++)->second)) ++removed;
  }
  unlist_free([](const Key&) { return true; });
  place_pending(later);
  return removed;
}

void StoreCore::unlist(Unlisting::Slot slot) noexcept {
  ++tiers_.back().filling;  // flush() waits for it
  unlisting_.slots.push_back(slot);
  if (std::exchange(unlisting_.busy, true)) return;
  begin_operation();
  enqueue(unlisting_);
}

bool StoreCore::next_unlisted() noexcept {
  const MutexLock lock(mutex_);
  Unlisting& job = unlisting_;
  job.size = std::min(job.slots.size(), Unlisting::kMost);
  std::copy_n(job.slots.end() - static_cast<std::ptrdiff_t>(job.size), job.size, job.batch.begin());
  job.slots.resize(job.slots.size() - job.size);
  job.busy = job.size > 0;
  return job.busy;
}

void StoreCore::unlisted(const Error* why) noexcept {
  {
    Later later;
    const MutexLock lock(mutex_);
    Tier& folder = tiers_.back();
    for (std::size_t i = 0; i < unlisting_.size; ++i) {
      --folder.filling;
      const Unlisting::Slot slot = unlisting_.batch[i];
      const bool none = folder.disk.full && !folder.disk.written[slot.number];
      (none ? folder.disk.none : folder.free).push_back(slot.number);
      if (why != nullptr && !slot.failed) ++counts_.failed;
    }
    if (why != nullptr) note(*why);
    place_pending(later);
  }
  transits_ended_.fetch_add(1);
  mover_.waiting().wake_all(transits_ended_);
  enqueue(unlisting_);
}

void Unlisting::run() noexcept {
  if (heard_late(*core)) return;
  if (!core->next_unlisted()) return core->end_operation();
  Folder& folder = *core->tiers_.back().folder;
  std::array<MovePair, kMost> pairs;
  for (std::size_t i = 0; i < size; ++i) {
    folder.blank(batch[i].number);
    pairs[i] = folder.header(batch[i].number);
  }
  hear(*core, core->mover().copy(std::span(pairs).first(size), {.priority = Priority::migration}));
}

void Unlisting::copied(const Result<MoveStats>& outcome) noexcept {
  core->unlisted(outcome ? nullptr : &outcome.error());
}

}  // namespace headrace::kvcache
