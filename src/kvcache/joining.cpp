// SPDX-License-Identifier: Apache-2.0
// Lets several loads of a block read it from the folder once. One load reads; the others take the
// bytes from its memory as soon as they are there, before the reader's end is reported. Missing or
// damaged bytes they read themselves, so neither a failure nor the end of the reader affects them.
// Each load compares the checksums of its own copy.
//
// A group of a load looks for readers when it is about to start. It follows a group that has been
// started and is about as small, and as urgent or becomes so. From then on others may follow it
// (open), until it has its bytes (done); before it looks again, it is done.
//
// No group waits for itself: a followed group has been open for longer than its follower. No group
// waits for a turn that it holds (in_line_): neither its reads nor the followed group wait for a
// turn.
#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "kvcache/core.h"

namespace headrace::kvcache {
namespace {

// A follower waits for all that its reader reads: at most this many times its own bytes.
constexpr std::uint64_t kMostTimes = 4;
// The most readers of a block that are considered.
constexpr unsigned kMostLooks = 8;

}  // namespace

Follower* LoadGroup::followed(unsigned item, unsigned layer) noexcept {
  const auto at =
      std::ranges::lower_bound(following, std::tuple(item, layer), {},
                               [](const Follower& f) { return std::tuple(f.item, f.layer); });
  const bool found = at != following.end() && at->item == item && at->layer == layer;
  return found ? &*at : nullptr;
}

void StoreCore::join(LoadGroup& group) noexcept {
  LoadState& load = *group.load;
  if (std::exchange(group.joined, true)) return;
  if (std::ranges::none_of(load.items, [&](const LoadItem& i) { return from_folder(i); })) return;
  std::vector<Follower> following;
  const auto wanted = [&](unsigned i) {
    return from_folder(load.items[i]) && !load.items[i].failed.load();
  };
  std::size_t most = 0;
  if (group.rounds < kMostRounds) {
    const MutexLock lock(mutex_);
    for (unsigned i = 0; i < load.items.size(); ++i) {
      const Entry& entry = *load.items[i].entry;
      const bool read = entry.readers != nullptr;
      if (wanted(i) && (read || in_memory(entry))) most += group.layers;
    }
  }
  try {
    following.reserve(most);
  } catch (const std::bad_alloc&) {  // the group reads everything itself
  }
  {
    const MutexLock tables(mutex_);
    const MutexLock lock(joins_mutex_);
    group.waits = bytes_of(group).value;
    for (unsigned i = 0; i < load.items.size(); ++i) {
      if (!wanted(i)) continue;
      bool reads = false;
      for (unsigned layer = group.first; layer < group.first + group.layers; ++layer) {
        auto own = group.own[group.at(i, layer)];
        own = own && !follow(group, i, layer, following);
        reads = reads || own;
      }
      LoadItem& item = load.items[i];
      if (!reads || std::exchange(item.reads, true)) continue;
      item.next = std::exchange(item.entry->readers, &item);
    }
    group.pending = 2 + following.size();
    group.following.swap(following);
    group.sharing = LoadGroup::Sharing::open;
  }
  if (group.priority() == Priority::demand) promote_leaders(group);
}

bool StoreCore::in_memory(const Entry& entry) const {
  return for_cpus_ && entry.copies[*for_cpus_].served();
}

bool StoreCore::may_follow(const LoadGroup& group, const LoadGroup& reading) const {
  return reading.sharing == LoadGroup::Sharing::open &&
         reading.waits <= kMostTimes * bytes_of(group).value &&
         (group.priority() == Priority::demand || reading.priority() <= group.priority());
}

bool StoreCore::follow(LoadGroup& group, unsigned item, unsigned layer,
                       std::vector<Follower>& following) {
  if (following.size() == following.capacity() || group.load->cancelled.load()) return false;
  const Entry& entry = *group.load->items[item].entry;
  Follower& follower = following.emplace_back();
  follower.group = &group;
  follower.item = item;
  follower.layer = layer;
  follower.late = in_memory(entry);
  if (follower.late) return true;
  unsigned looks = 0;
  for (const LoadItem* each = entry.readers; each != nullptr && looks < kMostLooks; ++looks) {
    if (follow(group, *each, follower)) return true;
    each = each->next;
  }
  following.pop_back();
  return false;
}

bool StoreCore::follow(LoadGroup& group, const LoadItem& block, Follower& follower) {
  LoadState& reader = *block.load;
  if (&reader == group.load || reader.cancelled.load() || block.failed.load()) return false;
  follower.theirs = static_cast<unsigned>(&block - reader.items.data());
  LoadGroup& reading = reader.group_of(follower.layer);
  if (reading.sharing == LoadGroup::Sharing::done && block.through.object != nullptr) {
    follower.late = true;
    follower.leader = reader.shared_from_this();
    return true;
  }
  const bool reads = reading.own[reading.at(follower.theirs, follower.layer)];
  if (!reads || !may_follow(group, reading)) return false;
  group.waits = std::max(group.waits, reading.waits);
  follower.reading = &reading;
  follower.at = &reading.followers;
  follower.next = std::exchange(reading.followers, &follower);
  if (follower.next != nullptr) follower.next->at = &follower.next;
  return true;
}

void StoreCore::take_late(LoadGroup& group) noexcept {
  for (Follower& follower : group.following) {
    if (!follower.late) continue;
    const bool taken = !group.load->cancelled.load() && take_late(follower);
    follower.leader.reset();
    deliver(follower, taken);
  }
}

bool StoreCore::take_late(const Follower& follower) noexcept {
  LoadState& load = *follower.group->load;
  const Extent to = landing(load, follower.item, follower.layer);
  if (follower.leader != nullptr) {
    LoadState& leader = *follower.leader;
    const MutexLock lock(leader.sharing);
    if (!leader.over && !leader.items[follower.theirs].failed.load()) {
      const Extent from = landing(leader, follower.theirs, follower.layer);
      std::memmove(to.memory(), from.memory(), to.length.value);
      return true;
    }
  }
  const Extent from = [&]() -> Extent {
    const MutexLock lock(mutex_);
    const Entry& entry = *load.items[follower.item].entry;
    if (!in_memory(entry)) return {};
    return in_slot(tiers_[*for_cpus_], entry.copies[*for_cpus_].slot,
                   follower.layer * to.length.value, to.length);
  }();
  if (from.object == nullptr) return false;
  std::memmove(to.memory(), from.memory(), to.length.value);  // valid while the load pins the block
  return true;
}

void StoreCore::share(LoadGroup& group) noexcept {
  Follower* next = nullptr;
  {
    const MutexLock lock(joins_mutex_);
    group.sharing = LoadGroup::Sharing::done;
    next = std::exchange(group.followers, nullptr);
    for (Follower* each = next; each != nullptr; each = each->next) each->reading = nullptr;
  }
  while (next != nullptr) {
    Follower& follower = *next;
    next = follower.next;
    LoadState& load = *follower.group->load;
    const Follower* const taken = group.followed(follower.theirs, follower.layer);
    const bool here =
        !group.load->items[follower.theirs].failed.load() && (taken == nullptr || taken->delivered);
    if (here) {
      const Extent to = landing(load, follower.item, follower.layer);
      const Extent from = landing(*group.load, follower.theirs, follower.layer);
      std::memmove(to.memory(), from.memory(), to.length.value);
    }
    deliver(follower, here);
  }
}

void StoreCore::unfollow(LoadState& load) noexcept {
  Follower* mine = nullptr;
  {
    const MutexLock lock(joins_mutex_);
    for (LoadGroup& group : load.groups) {
      for (Follower& follower : group.following) {
        if (std::exchange(follower.reading, nullptr) == nullptr) continue;
        *follower.at = follower.next;
        if (follower.next != nullptr) follower.next->at = follower.at;
        follower.next = std::exchange(mine, &follower);
      }
    }
  }
  while (mine != nullptr) {
    Follower& follower = *mine;
    mine = follower.next;
    deliver(follower, false);
  }
}

void StoreCore::leave(LoadState& load) noexcept {
  const MutexLock lock(load.sharing);
  load.over = true;
}

void StoreCore::deliver(Follower& follower, bool delivered) noexcept {
  LoadGroup& group = *follower.group;
  follower.delivered = delivered;
  if (!delivered) group.alone = true;
  settle(group);
}

void StoreCore::settle(LoadGroup& group) noexcept {
  if (group.pending.fetch_sub(1) != 1) return;
  if (group.given_up) return finish(group);
  if (group.alone.load() || std::ranges::any_of(group.load->items, [&](const LoadItem& item) {
        return from_folder(item);
      })) {
    enqueue(group);
  } else {
    finish(group);
  }
}

void StoreCore::read_again(LoadGroup& group) noexcept {
  LoadState& load = *group.load;
  share(group);  // its own bytes, before it waits for others
  {
    const MutexLock lock(joins_mutex_);
    std::fill(group.own.begin(), group.own.end(), false);
    for (const Follower& follower : group.following) {
      if (!follower.delivered) group.own[group.at(follower.item, follower.layer)] = true;
    }
    group.following.clear();
    group.sharing = LoadGroup::Sharing::not_yet;
  }
  ++group.rounds;
  group.pending = 2;
  group.alone = group.joined = group.started = false;
  const std::shared_ptr<LoadState> held = load.shared_from_this();
  const bool in_line = has_turns(load) && [&] {
    const MutexLock lock(turns_mutex_);
    if (load.cancelled.load()) return false;
    again_.push(group);
    return true;
  }();
  in_line ? start_next(true) : start(group);
}

void StoreCore::promote_leaders(LoadGroup& group) noexcept {
  for (std::size_t next = 0;;) {
    std::shared_ptr<LoadState> held;  // released outside the lock
    LoadGroup* leader = nullptr;
    {
      const MutexLock lock(joins_mutex_);
      while (leader == nullptr && next < group.following.size()) {
        LoadGroup* const reading = group.following[next++].reading;
        if (reading != nullptr && reading->priority() != Priority::demand) leader = reading;
      }
      if (leader == nullptr) return;
      held = leader->load->shared_from_this();
    }
    promote(*leader);
  }
}

// The bytes from `layer` on in the memory that a block passes through. Requires: `bytes` are of one
// layer, if that memory is ordered by layer.
Extent StoreCore::passing(const LoadState& load, const LoadItem& item, unsigned layer,
                          Bytes bytes) const noexcept {
  const std::uint64_t fragment = options_.geometry.fragment().value;
  if (item.through.object != load.passage.get()) return item.through.part(layer * fragment, bytes);
  // Devices need the same offset within a page on both sides.
  const bool by_layer = load.groups.size() > 1 && fragment % 4096 == 0;
  const std::uint64_t at = by_layer
                               ? (std::uint64_t{layer} * load.passing + item.in_passage) * fragment
                               : item.in_passage * slot_ + layer * fragment;
  return item.through.part(at, bytes);
}

Extent StoreCore::landing(const LoadState& load, unsigned number, unsigned layer) const noexcept {
  const LoadItem& item = load.items[number];
  const std::uint64_t fragment = options_.geometry.fragment().value;
  if (item.through.object != nullptr) return passing(load, item, layer, Bytes{fragment});
  const std::uint64_t blocks = load.into.length.value / block_;
  const std::uint64_t at = load.options.layout == Layout::page_first
                               ? item.position * block_ + layer * fragment
                               : (layer * blocks + item.position) * fragment;
  return load.into.part(at, Bytes{fragment});
}

}  // namespace headrace::kvcache
