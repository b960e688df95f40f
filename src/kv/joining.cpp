// Blocks that two loads want at once: the first reads them from the folder, the others take them
// from its memory as soon as they are there, before it is told of them. What it did not get, and
// what was gone from its memory before they came, they read themselves: neither a failure nor an
// end of the first is theirs. Each compares the checksums of its own copy.
//
// A load follows only loads that have begun before it, so none waits for itself; and while it only
// waits it has no turn (in_line_), so none waits for a turn that it holds.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kv/core.h"

namespace headrace::kv {
namespace {

void plan_following(LoadState& load) {
  for (LoadGroup& group : load.groups) {
    for (unsigned i = 0; i < load.items.size(); ++i) {
      if (load.items[i].leader == nullptr || load.items[i].failed.load()) continue;
      for (unsigned layer = group.first; layer < group.first + group.layers; ++layer) {
        group.following.push_back({.group = &group, .item = i, .layer = layer});
      }
    }
  }
}

}  // namespace

void StoreCore::join(LoadState& load) {
  for (unsigned i = 0; i < load.items.size(); ++i) {
    LoadItem& item = load.items[i];
    Entry& entry = *item.entry;
    if (!from_folder(item) || entry.reader == &load) continue;
    if (entry.reader == nullptr || entry.reader->cancelled.load()) {
      entry.reader = &load;
      entry.reader_item = i;
      continue;
    }
    const MutexLock lock(joins_mutex_);
    item.leader = entry.reader->shared_from_this();
    item.leader_item = entry.reader_item;
    load.follows = true;
  }
}

bool StoreCore::next_leader(const LoadState& load, std::size_t& next,
                            std::shared_ptr<LoadState>& leader) noexcept {
  const std::shared_ptr<LoadState> before = std::move(leader);  // let go without the lock
  const MutexLock lock(joins_mutex_);
  for (; next < load.items.size(); ++next) {
    const std::shared_ptr<LoadState>& found = load.items[next].leader;
    if (found == nullptr || found == before) continue;
    leader = found;
    return true;
  }
  return false;
}

void StoreCore::follow(LoadState& load) noexcept {
  if (!load.follows.load()) return;
  try {
    plan_following(load);
  } catch (const std::bad_alloc&) {  // it reads all itself
    for (LoadGroup& group : load.groups) group.following.clear();
  }
  for (LoadGroup& group : load.groups) {
    group.pending += group.following.size();
    for (Follower& follower : group.following) {
      LoadGroup& reading = load.items[follower.item].leader->group_of(follower.layer);
      const MutexLock lock(joins_mutex_);
      if (reading.shared || load.cancelled.load()) continue;
      follower.joined = true;
      follower.next = std::exchange(reading.followers, &follower);
    }
    promote_leaders(group);
  }
}

void StoreCore::take_late(LoadGroup& group) noexcept {
  for (Follower& follower : group.following) {
    if (std::exchange(follower.joined, true)) continue;
    deliver(follower, !group.load->cancelled.load() && take_late(follower));
  }
}

bool StoreCore::take_late(const Follower& follower) noexcept {
  LoadState& load = *follower.group->load;
  const LoadItem& item = load.items[follower.item];
  const Extent to = landing(load, follower.item, follower.layer);
  LoadState& leader = *item.leader;
  const LoadItem& theirs = leader.items[item.leader_item];
  {
    const MutexLock lock(leader.sharing);
    if (!leader.over && theirs.through.object != nullptr && !theirs.failed.load()) {
      const Extent from = landing(leader, item.leader_item, follower.layer);
      std::memmove(to.memory(), from.memory(), to.length.value);
      return true;
    }
  }
  const Extent from = [&]() -> Extent {
    const MutexLock lock(mutex_);
    if (!for_cpus_ || !item.entry->copies[*for_cpus_].served()) return {};
    return in_slot(tiers_[*for_cpus_], item.entry->copies[*for_cpus_].slot,
                   follower.layer * to.length.value, to.length);
  }();
  if (from.object == nullptr) return false;
  std::memmove(to.memory(), from.memory(), to.length.value);  // the load's pin keeps it there
  return true;
}

void StoreCore::share(LoadGroup& group) noexcept {
  Follower* next = nullptr;
  {
    const MutexLock lock(joins_mutex_);
    group.shared = true;
    next = std::exchange(group.followers, nullptr);
  }
  while (next != nullptr) {
    Follower& follower = *next;
    next = follower.next;
    LoadState& load = *follower.group->load;
    const unsigned theirs = load.items[follower.item].leader_item;
    const bool here = !group.load->items[theirs].failed.load();
    if (here) {
      const Extent to = landing(load, follower.item, follower.layer);
      const Extent from = landing(*group.load, theirs, follower.layer);
      std::memmove(to.memory(), from.memory(), to.length.value);
    }
    deliver(follower, here);
  }
}

void StoreCore::unfollow(LoadState& load) noexcept {
  std::shared_ptr<LoadState> leader;
  for (std::size_t next = 0; next_leader(load, next, leader);) {
    Follower* mine = nullptr;
    {
      const MutexLock lock(joins_mutex_);
      for (LoadGroup& reading : leader->groups) {
        for (Follower** at = &reading.followers; *at != nullptr;) {
          Follower& follower = **at;
          if (follower.group->load != &load) {
            at = &follower.next;
            continue;
          }
          *at = follower.next;
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
}

void StoreCore::leave(LoadState& load) noexcept {
  {
    const MutexLock lock(load.sharing);
    load.over = true;
  }
  if (!load.follows.load()) return;
  for (LoadItem& item : load.items) {
    std::shared_ptr<LoadState> leader;  // let go without the lock
    const MutexLock lock(joins_mutex_);
    leader.swap(item.leader);
  }
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

void StoreCore::promote_leaders(LoadGroup& group) noexcept {
  LoadState& load = *group.load;
  if (!load.follows.load()) return;
  const Priority priority = group.priority();
  std::shared_ptr<LoadState> leader;
  for (std::size_t next = 0; next_leader(load, next, leader);) {
    for (unsigned layer = group.first; layer < group.first + group.layers; ++layer) {
      LoadGroup& reading = leader->group_of(layer);
      priority == Priority::demand ? promote(reading) : moving(reading).promote(priority);
    }
  }
}

Extent StoreCore::landing(const LoadState& load, unsigned number, unsigned layer) const noexcept {
  const LoadItem& item = load.items[number];
  const std::uint64_t fragment = options_.geometry.fragment().value;
  if (item.through.object != nullptr) return item.through.part(fragment * layer, Bytes{fragment});
  const std::uint64_t blocks = load.into.length.value / block_;
  const std::uint64_t at = load.options.layout == Layout::page_first
                               ? item.position * block_ + layer * fragment
                               : (layer * blocks + item.position) * fragment;
  return load.into.part(at, Bytes{fragment});
}

}  // namespace headrace::kv
