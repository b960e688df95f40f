// SPDX-License-Identifier: Apache-2.0
// Evictions from tiers, and flush().
#include <algorithm>

#include "core/check.h"
#include "core/fail.h"
#include "core/waiting/patience.h"
#include "kvcache/core.h"

namespace headrace::kvcache {

namespace {

// After this many blocks offered in one search, the tier is considered fully pinned.
constexpr unsigned kEffort = 1024;
// One slot in this many is kept free, so that stores need not wait for demotions.
constexpr std::uint32_t kReserve = 16;

}  // namespace

std::optional<std::uint32_t> StoreCore::take_slot(unsigned index, Loss loss) {
  Tier& tier = tiers_[index];
  DiskRoom& disk = tier.disk;
  if (disk.closed > Nanoseconds{0} && mover_.clock().now() < disk.closed) return std::nullopt;
  if (tier.free.empty() && !disk.none.empty() && mover_.clock().now() >= disk.again) {
    disk.trying = disk.none.back();
    disk.none.pop_back();
    disk.again = mover_.clock().now() + kRest;
    return disk.trying;
  }
  if (tier.free.empty()) make_room(index, 1, loss);
  if (tier.free.empty()) return std::nullopt;
  const std::uint32_t slot = tier.free.back();
  tier.free.pop_back();
  return slot;
}

void StoreCore::make_room(unsigned index, std::size_t wanted, Loss loss) {
  Tier& tier = tiers_[index];
  while (tier.free.size() + tier.leaving < wanted && tier.leaving < most_moving()) {
    if (!let_one_leave(index, loss)) return;
  }
}

bool StoreCore::let_one_leave(unsigned index, Loss loss) {
  Tier& tier = tiers_[index];
  EvictionLinks* const chosen = tier.order->choose(
      [](EvictionLinks& links) {
        const Copy& copy = static_cast<Copy&>(links);
        return copy.entry->pins == 0 && copy.state == Copy::State::ready &&
               std::ranges::none_of(copy.entry->copies, [](const Copy& other) {
                 return other.state == Copy::State::filling;  // perhaps from this one
               });
      },
      kEffort);
  if (chosen == nullptr) return false;
  Copy& copy = static_cast<Copy&>(*chosen);
  const bool kept = elsewhere(copy);
  if (!kept && demote(copy, index, loss)) return true;
  if (!kept && loss == Loss::never) return false;
  ++(kept ? tier.counts.evicted : tier.counts.dropped);
  tier.order->evict(copy, copy.entry->key.low);
  drop(copy, index);
  return true;
}

std::size_t StoreCore::reserve_of(unsigned index) const { return tiers_[index].slots / kReserve; }

std::size_t StoreCore::most_moving() const {
  return std::max<std::size_t>(options_.in_flight.value / block_, 1);
}

bool StoreCore::elsewhere(const Copy& copy) const {
  return std::ranges::any_of(copy.entry->copies,
                             [&](const Copy& other) { return &other != &copy && other.served(); });
}

bool StoreCore::demote(Copy& copy, unsigned index, Loss loss) {
  if (closing_) return false;
  const Then then = loss == Loss::never ? Then::leaves_if_copied : Then::leaves;
  for (unsigned to = index + 1; to < tiers_.size(); ++to) {
    const Nanoseconds rests = tiers_[to].rests;
    if (loss == Loss::never && rests > Nanoseconds{0} && mover_.clock().now() < rests) continue;
    // The last tier cannot demote its blocks: an evicted block is dropped, whatever arrives.
    const auto slot = take_slot(to, to + 1 == tiers_.size() ? Loss::allowed : loss);
    if (!slot) continue;
    if (send(copy, index, to, *slot, then)) return true;
    tiers_[to].free.push_back(*slot);
    return false;
  }
  return false;
}

void StoreCore::disk_is_full(Tier& tier, std::uint32_t slot) {
  DiskRoom& disk = tier.disk;
  disk.again = mover_.clock().now() + kRest;
  if (disk.written[slot]) {  // the file system writes each block anew elsewhere
    disk.closed = disk.again;
    return;
  }
  disk.full = true;
  disk.trying.reset();
  std::erase_if(tier.free, [&](std::uint32_t free) {
    if (disk.written[free]) return false;
    disk.none.push_back(free);
    return true;
  });
}

void StoreCore::disk_has(Tier& tier, std::uint32_t slot) {
  tier.disk.written[slot] = true;
  if (tier.disk.trying == slot) reopen_disk(tier);
}

void StoreCore::reopen_disk(Tier& tier) {
  DiskRoom& disk = tier.disk;
  disk.full = false;
  disk.trying.reset();
  disk.closed = Nanoseconds{0};
  tier.free.insert(tier.free.begin(), disk.none.begin(), disk.none.end());
  disk.none.clear();
}

void StoreCore::fill(Copy& copy, Entry& entry, unsigned index, std::uint32_t slot) {
  copy.entry = &entry;
  copy.slot = slot;
  copy.state = Copy::State::filling;
  copy.visited = false;
  ++tiers_[index].filling;
}

void StoreCore::enter_order(Copy& copy, unsigned index) {
  tiers_[index].order->insert(copy, {.key = copy.entry->key.low, .bytes = block_});
}

void StoreCore::ready(Copy& copy, unsigned index) {
  DCHECK(copy.state == Copy::State::filling);
  copy.state = Copy::State::ready;
  --tiers_[index].filling;
  enter_order(copy, index);
  if (copy.entry->removed) withdraw(copy, index);
}

void StoreCore::drop(Copy& copy, unsigned index, bool half) {
  Tier& tier = tiers_[index];
  if (copy.state == Copy::State::filling) --tier.filling;
  copy.state = Copy::State::none;
  if (tier.folder != nullptr && (half || copy.entry->removed)) {
    unlist({.number = copy.slot, .failed = half && !copy.entry->removed});
  } else {
    tier.free.push_back(copy.slot);
  }
  const Entry& entry = *copy.entry;
  const bool gone =
      !entry.waiting && entry.pins == 0 && std::ranges::all_of(entry.copies, [](const Copy& other) {
        return other.state == Copy::State::none;
      });
  if (gone) entries_.erase(Key{entry.key});
}

void StoreCore::pin(Entry& entry) {
  if (entry.pins++ == 0) ++pinned_;
}

void StoreCore::unpin(Entry& entry) {
  if (--entry.pins > 0) return;
  --pinned_;
  std::array<unsigned, kMostTiers> damaged{};
  std::size_t count = 0;
  for (unsigned tier = 0; tier < tiers_.size(); ++tier) {
    if (entry.copies[tier].state == Copy::State::damaged) damaged[count++] = tier;
  }
  for (std::size_t i = 0; i < count; ++i) drop(entry.copies[damaged[i]], damaged[i]);
}

bool StoreCore::only_in_memory(const Entry& entry) const {
  const Copy& last = entry.copies[tiers_.size() - 1];
  return last.state == Copy::State::none && entry.fastest().has_value();
}

bool StoreCore::arriving(const Entry& entry) const {
  return !entry.removed && entry.copies[tiers_.size() - 1].state == Copy::State::none &&
         (entry.waiting || std::ranges::any_of(entry.copies, [](const Copy& copy) {
            return copy.state == Copy::State::filling;
          }));
}

bool StoreCore::list(Flushing& flushing) {
  std::vector<std::pair<std::uint64_t, Key>> used;  // with its last use
  {
    const MutexLock lock(mutex_);
    std::erase_if(flushing.arriving, [&](const Key& key) REQUIRES(mutex_) {
      const auto found = entries_.find(key);
      return found == entries_.end() || !arriving(found->second);
    });
    if (!flushing.arriving.empty() && !closing_) return false;
    for (const auto& [key, entry] : entries_) {
      if (only_in_memory(entry)) used.emplace_back(entry.used, key);
    }
  }
  // Keys are taken from the back, in order of use, so the prefix of a prompt is written first.
  // Without it the blocks after it are not found, if time or space ends before all are written.
  std::ranges::sort(used, std::ranges::greater{}, &std::pair<std::uint64_t, Key>::first);
  for (const auto& each : used) flushing.keys.push_back(each.second);
  flushing.listed = true;
  return true;
}

bool StoreCore::flush_some(std::vector<Key>& keys) {
  const MutexLock lock(mutex_);
  if (closing_) return false;
  const auto last = static_cast<unsigned>(tiers_.size() - 1);
  Tier& folder = tiers_[last];
  std::vector<Key> moving;  // blocks on their way to another memory, written once they are there
  while (!keys.empty() && !folder.free.empty() && folder.filling < most_moving()) {
    const auto found = entries_.find(keys.back());
    keys.pop_back();
    if (found == entries_.end() || !only_in_memory(found->second)) continue;
    const unsigned tier = *found->second.fastest();
    Copy& copy = found->second.copies[tier];
    if (copy.state != Copy::State::ready) {
      moving.push_back(found->first);
      continue;
    }
    if (!send(copy, tier, last, folder.free.back(), Then::stays)) {
      ++counts_.failed;
      note(kNoMemory);
      keys.clear();
      break;
    }
    folder.free.pop_back();
  }
  keys.insert(keys.end(), moving.rbegin(), moving.rend());
  return folder.filling > 0 || !moving.empty();
}

Status StoreCore::flushed(std::size_t left, std::uint64_t failed, Status outcome) const {
  const MutexLock lock(mutex_);
  std::uint64_t lost = counts_.failed - failed;
  if (!closing_ && tiers_.back().disk.full) lost += left;  // no slot
  if (lost > 0) {
    return fail(ErrorCode::io, "{} blocks could not be written: {}", lost, last_error_);
  }
  HEADRACE_TRY_STATUS(std::move(outcome));
  return tiers_.back().folder->still_there();
}

Status StoreCore::flush(Nanoseconds timeout, const Stop& stop) {
  HEADRACE_TRY_STATUS(origin_.check(kTheStore));
  {
    const MutexLock lock(mutex_);
    HEADRACE_TRY_STATUS(check_open());
    begin_operation();
  }
  struct Ends {  // also without memory
    StoreCore& core;
    ~Ends() { core.end_operation(); }
  } const ends{*this};
  HEADRACE_TRY_STATUS(flush_all(timeout, stop));
  return check_open();
}

Status StoreCore::flush_all(Nanoseconds timeout, const Stop& stop) {
  if (tiers_.back().folder == nullptr) return {};
  Flushing flushing;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      if (arriving(entry)) flushing.arriving.push_back(key);
    }
    flushing.failed = counts_.failed;
    reopen_disk(tiers_.back());
  }
  Patience patience(mover_.clock(), mover_.waiting(), timeout);
  Nanoseconds asked = mover_.clock().now();
  for (;;) {
    const std::uint32_t seen = transits_ended_.load();
    if ((flushing.listed || list(flushing)) && !flush_some(flushing.keys)) {
      return flushed(flushing.keys.size(), flushing.failed, {});
    }
    Status ended = wait(
        transits_ended_, [&] { return transits_ended_.load() != seen; },
        stop ? std::min(patience.left(), kAskToStop) : patience.left(), "the flush");
    if (!ended && (ended.error().code != ErrorCode::timed_out || !stop || patience.over())) {
      return flushed(0, flushing.failed, std::move(ended));
    }
    if (!stop || (ended && mover_.clock().now() - asked < kAskToStop)) continue;
    asked = mover_.clock().now();
    if (stop()) {
      return flushed(0, flushing.failed, fail(ErrorCode::cancelled, "the flush was stopped"));
    }
  }
}

}  // namespace headrace::kvcache
