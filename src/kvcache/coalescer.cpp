// SPDX-License-Identifier: Apache-2.0
#include "kvcache/coalescer.h"

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

void Coalescer::join(LoadGroup& group) noexcept {
  LoadState& load = *group.load;
  if (std::exchange(group.joined, true)) return;
  if (std::ranges::none_of(load.items,
                           [&](const LoadItem& i) { return store_.loads.from_folder(i); }))
    return;
  std::vector<Follower> following;
  const auto wanted = [&](unsigned i) {
    return store_.loads.from_folder(load.items[i]) && !load.items[i].failed.load();
  };
  std::size_t most = 0;
  if (group.rounds < kMostRounds) {
    const TableLock lock(store_.table);
    for (unsigned i = 0; i < load.items.size(); ++i) {
      const Entry& entry = *load.items[i].entry;
      const bool read = entry.readers != nullptr;
      if (wanted(i) && (read || store_.table.in_memory(entry))) most += group.layers;
    }
  }
  try {
    following.reserve(most);
  } catch (const std::bad_alloc&) {  // the group reads everything itself
  }
  {
    const TableLock table(store_.table);
    const MutexLock lock(mutex_);
    group.waits = group.bytes;
    for (unsigned i = 0; i < load.items.size(); ++i) {
      if (!wanted(i)) continue;
      bool reads = false;
      for (unsigned layer = group.first; layer < group.end_of(load.items[i]); ++layer) {
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
  if (group.priority() == Priority::demand) make_readers_urgent(group);
}

bool Coalescer::may_follow(const LoadGroup& group, const LoadGroup& reading) const {
  return reading.sharing == LoadGroup::Sharing::open && reading.waits <= kMostTimes * group.bytes &&
         (group.priority() == Priority::demand || reading.priority() <= group.priority());
}

bool Coalescer::follow(LoadGroup& group, unsigned item, unsigned layer,
                       std::vector<Follower>& following) {
  if (following.size() == following.capacity() || group.load->cancelled.load()) return false;
  const Entry& entry = *group.load->items[item].entry;
  Follower& follower = following.emplace_back();
  follower.group = &group;
  follower.item = item;
  follower.layer = layer;
  follower.late = store_.table.in_memory(entry);
  if (follower.late) return true;
  unsigned looks = 0;
  for (const LoadItem* each = entry.readers; each != nullptr && looks < kMostLooks; ++looks) {
    if (follow(group, *each, follower)) return true;
    each = each->next;
  }
  following.pop_back();
  return false;
}

bool Coalescer::follow(LoadGroup& group, const LoadItem& block, Follower& follower) {
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

void Coalescer::take_late(LoadGroup& group) noexcept {
  for (Follower& follower : group.following) {
    if (!follower.late) continue;
    const bool taken = !group.load->cancelled.load() && take_late(follower);
    follower.leader.reset();
    deliver(follower, taken);
  }
}

bool Coalescer::take_late(const Follower& follower) noexcept {
  LoadState& load = *follower.group->load;
  const Extent to = store_.loads.landing(load, follower.item, follower.layer);
  if (follower.leader != nullptr) {
    LoadState& leader = *follower.leader;
    const MutexLock lock(leader.sharing);
    if (!leader.over && !leader.items[follower.theirs].failed.load()) {
      const Extent from = store_.loads.landing(leader, follower.theirs, follower.layer);
      std::memmove(to.memory(), from.memory(), to.length.value);
      return true;
    }
  }
  const Extent from = [&]() -> Extent {
    const TableLock lock(store_.table);
    const Entry& entry = *load.items[follower.item].entry;
    if (!store_.table.in_memory(entry)) return {};
    const unsigned tier = *store_.table.for_cpus();
    std::uint32_t slot = entry.copies[tier].slot;
    if (!store_.geometry().any_size) {
      return store_.table.tier(tier).in_slot(slot, follower.layer * to.length.value, to.length);
    }
    for (unsigned part = 0; part < follower.layer; ++part) {
      slot = store_.table.tier(tier).next_of(slot);
    }
    return store_.table.tier(tier).in_slot(slot, 0, to.length);
  }();
  if (from.object == nullptr) return false;
  std::memmove(to.memory(), from.memory(), to.length.value);  // valid while the load pins the block
  return true;
}

void Coalescer::share(LoadGroup& group) noexcept {
  Follower* next = nullptr;
  {
    const MutexLock lock(mutex_);
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
      const Extent to = store_.loads.landing(load, follower.item, follower.layer);
      const Extent from = store_.loads.landing(*group.load, follower.theirs, follower.layer);
      std::memmove(to.memory(), from.memory(), to.length.value);
    }
    deliver(follower, here);
  }
}

void Coalescer::reset(LoadGroup& group) noexcept {
  const MutexLock lock(mutex_);
  std::fill(group.own.begin(), group.own.end(), false);
  for (const Follower& follower : group.following) {
    if (!follower.delivered) group.own[group.at(follower.item, follower.layer)] = true;
  }
  group.following.clear();
  group.sharing = LoadGroup::Sharing::not_yet;
}

void Coalescer::unfollow(LoadState& load) noexcept {
  Follower* mine = nullptr;
  {
    const MutexLock lock(mutex_);
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

void Coalescer::deliver(Follower& follower, bool delivered) noexcept {
  LoadGroup& group = *follower.group;
  follower.delivered = delivered;
  if (!delivered) group.alone = true;
  store_.loads.settle(group);
}

void Coalescer::make_readers_urgent(LoadGroup& group) noexcept {
  for (std::size_t next = 0;;) {
    std::shared_ptr<LoadState> held;  // released outside the lock
    LoadGroup* leader = nullptr;
    {
      const MutexLock lock(mutex_);
      while (leader == nullptr && next < group.following.size()) {
        LoadGroup* const reading = group.following[next++].reading;
        if (reading != nullptr && reading->priority() != Priority::demand) leader = reading;
      }
      if (leader == nullptr) return;
      held = leader->load->shared_from_this();
    }
    store_.loads.make_urgent(*leader);
  }
}

}  // namespace headrace::kvcache
