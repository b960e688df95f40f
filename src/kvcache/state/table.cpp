// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/table.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/fail.h"

namespace headrace::kvcache {
namespace {

std::size_t hash_of(const Key& key) { return key.low; }

}  // namespace

std::optional<unsigned> Entry::fastest() const {
  for (unsigned tier = 0; tier < copies.size(); ++tier) {
    if (!removed && copies[tier].served()) return tier;
  }
  return std::nullopt;
}

bool Entry::has(Copy::State state) const {
  return std::ranges::find(copies, state, &Copy::state) != copies.end();
}

bool Entry::elsewhere(const Copy& copy) const {
  return std::ranges::any_of(copies,
                             [&](const Copy& other) { return &other != &copy && other.served(); });
}

bool Tier::all_closed(Nanoseconds now) const {
  return folder != nullptr && std::ranges::all_of(disk.disks, [&](const Disk& each) {
           return each.state == Disk::State::closed && now < each.again;
         });
}

bool Tier::any_refuses() const {
  return std::ranges::any_of(disk.disks,
                             [](const Disk& each) { return each.state != Disk::State::open; });
}

bool Tier::may_evict(std::uint32_t slot, std::size_t count, Nanoseconds now) const {
  if (folder == nullptr) return true;
  const unsigned number = free.disk_of(slot);
  if (folder->starts()[number + 1] - folder->starts()[number] < count) return false;
  const Disk& each = disk.disks[number];
  return each.state != Disk::State::closed || now >= each.again;
}

bool Tier::refused(std::uint32_t slot) const {
  if (folder == nullptr) return false;
  const Disk& of_slot = disk.disks[free.disk_of(slot)];
  return of_slot.state == Disk::State::closed ||
         (of_slot.state == Disk::State::full && !disk.written[slot]);
}

void Tier::sort_free(unsigned number) {
  free.take_back(number);
  free.set_aside_if(number, [&](std::uint32_t slot) REQUIRES(kTable) { return refused(slot); });
}

void Tier::free_slot(std::uint32_t slot) {
  refused(slot) ? free.push_aside(slot) : free.push(slot);
}

std::size_t Tier::largest() const {
  if (folder == nullptr) return slots;
  std::uint32_t most = 0;
  for (unsigned number = 0; number < folder->disks(); ++number) {
    most = std::max(most, folder->starts()[number + 1] - folder->starts()[number]);
  }
  return most;
}

std::uint32_t Tier::take(unsigned number, std::size_t count, bool aside) {
  const auto pop = [&]() REQUIRES(kTable) {
    return aside ? *free.pop_aside(number) : *free.pop(number);
  };
  const std::uint32_t first = pop();
  if (next.empty()) return first;
  std::uint32_t last = first;
  for (std::size_t more = 1; more < count; ++more) last = next[last] = pop();
  next[last] = kNoSlot;
  return first;
}

// The last slot first, so that the next block has them in this order: neighbours are one copy.
void Tier::give_back(std::uint32_t first) {
  std::uint32_t before = kNoSlot;
  if (!next.empty()) {
    for (std::uint32_t slot = first; slot != kNoSlot;) {
      first = slot;
      slot = std::exchange(next[slot], std::exchange(before, slot));
    }
  }
  for (; first != kNoSlot; first = next_of(first)) free_slot(first);
}

std::optional<std::uint32_t> Tier::try_again(Disk::State state, std::size_t count,
                                             Nanoseconds now) {
  for (unsigned number = 0; number < disk.disks.size(); ++number) {
    Disk& each = disk.disks[number];
    if (each.state != state || now < each.again || free.aside(number) < count) continue;
    each.again = now + kRest;
    each.trying = take(number, count, true);
    return each.trying;
  }
  return std::nullopt;
}

// A disk that failed is tried first, since the tier has others: they may have space for long.
std::optional<std::uint32_t> Tier::take_free(std::size_t count, Nanoseconds now) {
  if (const auto slot = try_again(Disk::State::closed, count, now)) return slot;
  if (const auto slot = take_usable(count)) return slot;
  return try_again(Disk::State::full, count, now);
}

std::optional<std::uint32_t> Tier::take_usable(std::size_t count) {
  const auto number = free.emptiest(count);
  if (!number) return std::nullopt;
  return take(*number, count, false);
}

bool Tier::has_free(std::size_t count, Nanoseconds now) const {
  for (unsigned number = 0; number < disk.disks.size(); ++number) {
    const Disk& each = disk.disks[number];
    const bool due = each.state == Disk::State::closed && now >= each.again;
    if (due && free.aside(number) >= count) return true;
  }
  return free.emptiest(count).has_value();
}

// An error that says nothing of the disk, such as a time-out, leaves it open.
bool Tier::disk_refused(std::uint32_t first, const Error& why, Nanoseconds now) {
  const bool full = why.code == ErrorCode::exhausted;
  const bool lost = why.code == ErrorCode::io && folder->disks() > 1;
  if (!full && !lost) return false;
  const unsigned number = free.disk_of(first);
  Disk& of_slot = disk.disks[number];
  const Disk::State before = of_slot.state;
  const bool tried = of_slot.trying == first;
  bool written = true;
  for (std::uint32_t slot = first; slot != kNoSlot; slot = next_of(slot)) {
    written = written && disk.written[slot];
  }
  if (!disk.refused) disk.refused = now;
  of_slot.again = now + kRest;
  if (tried) of_slot.trying.reset();
  if (full && !written && (tried || before != Disk::State::closed)) {
    of_slot.state = Disk::State::full;
    of_slot.failed = false;
  } else {  // some file systems write each block anew elsewhere
    of_slot.state = Disk::State::closed;
    of_slot.failed = of_slot.failed || lost;
  }
  if (of_slot.state != before) sort_free(number);
  return !all_closed(now);
}

void Tier::disk_has(std::uint32_t first) {
  disk.refused.reset();
  for (std::uint32_t slot = first; slot != kNoSlot; slot = next_of(slot)) disk.written[slot] = true;
  const unsigned number = free.disk_of(first);
  if (disk.disks[number].trying != first) return;
  disk.disks[number] = {};
  sort_free(number);
}

void Tier::reopen_disks() {
  for (unsigned number = 0; number < disk.disks.size(); ++number) {
    if (disk.disks[number].failed) continue;
    disk.disks[number] = {};
    sort_free(number);
  }
}

Result<std::unique_ptr<Buffer>> Sharing::allocate(const Machine& machine, Bytes bytes,
                                                  const Placement& memory) {
  HEADRACE_TRY(SharedBuffer shared, allocate_shared(machine, bytes, memory));
  memory_ = std::move(shared.file);
  return std::move(shared.buffer);
}

Status Sharing::open(SharedSizes sizes, const Tier& first) {
  if (memory_.get() >= 0) sizes.slots = first.slots;
  HEADRACE_TRY(index_, SharedIndex::make(sizes));
  return {};
}

void Sharing::show(const Entry& entry) {
  if (index_ == nullptr) return;
  if (!entry.fastest()) return index_->erase(entry.key);
  const Copy& first = entry.copies[0];
  const bool here = memory_.get() >= 0 && first.served();
  index_->set(entry.key, here ? std::optional(first.slot) : std::nullopt);
}

void Sharing::close() {
  if (index_ != nullptr) index_->close();
}

std::optional<SharedFiles> Sharing::files() const {
  if (index_ == nullptr) return std::nullopt;
  SharedFiles files{.memory = {}, .index = index_->descriptor()};
  if (memory_.get() >= 0) files.memory = memory_.get();
  return files;
}

BlockTable::BlockTable(Mover& mover, const StoreOptions& options, Unlister& unlister)
    : mover_(mover),
      options_(options),
      unlister_(unlister),
      block_bytes_(options.geometry.block().value),
      slot_bytes_(Folder::slot_bytes(options.geometry).value),
      any_size_(options.geometry.any_size),
      tiers_(options.tiers.size()),
      entries_(0, hash_of) {}

Status BlockTable::open() {
  for (unsigned i = 0; i < tiers_.size(); ++i) HEADRACE_TRY_STATUS(open_tier(i));
  if (!options_.shared) return {};
  SharedSizes sizes{.slot_bytes = slot_bytes_, .block_bytes = block_bytes_};
  for (const Tier& tier : tiers_) sizes.blocks += tier.slots;
  HEADRACE_TRY_STATUS(sharing.open(sizes, tiers_.front()));
  const TableLock lock(*this);
  for (const auto& [key, entry] : entries_) sharing.show(entry);
  return {};
}

Result<std::shared_ptr<const Object>> allocate(const Machine& machine, const StoreOptions& options,
                                               const Placement& memory, Bytes bytes) {
  if (!options.allocate) return headrace::allocate(machine, bytes, memory);
  HEADRACE_TRY(auto made, options.allocate(memory, bytes));
  if (made != nullptr && made->size() >= bytes) return made;
  return fail(ErrorCode::invalid, "StoreOptions::allocate returned less than {}; return all of it",
              to_string(bytes));
}

Status BlockTable::open_tier(unsigned index) {
  const TierOptions& options = options_.tiers[index];
  const Machine& machine = mover_.machine();
  Tier& tier = tiers_[index];
  tier.slots = static_cast<std::uint32_t>(options.budget.value / slot_bytes_);
  tier.slot_bytes = slot_bytes_;
  tier.unit = block_bytes_;
  std::string name = options.folder.string();
  if (options.folder.empty()) {
    if (storage_of(machine, options.memory) != nullptr) {
      return fail(ErrorCode::invalid,
                  "tier {} is memory in a file on storage; give a folder there, which is kept",
                  index);
    }
    const Bytes bytes{tier.slots * slot_bytes_};
    if (options_.shared && index == 0) {
      HEADRACE_TRY(tier.buffer, sharing.allocate(machine, bytes, options.memory));
    } else {
      HEADRACE_TRY(tier.buffer, allocate(machine, options_, options.memory, bytes));
    }
    const Node* const node = machine.find(tier.buffer->node());
    name = node == nullptr ? "memory" : to_string(node->kind);
    if (!for_cpus_ && tier.buffer->memory() != nullptr) for_cpus_ = index;
  } else {
    NodeId headers{0};
    if (for_cpus_) {
      headers = tiers_[*for_cpus_].buffer->node();
    } else {
      const auto found = std::ranges::find_if(machine.nodes, &Node::byte_addressable);
      if (found != machine.nodes.end()) headers = found->id;
    }
    HEADRACE_TRY(tier.folder, Folders::open(mover_, options, options_.geometry, headers));
    tier.slots = tier.folder->slots();
    for (const FolderOptions& more : options.more_folders) name += ", " + more.folder.string();
  }
  const TableLock lock(*this);
  if (any_size_) tier.next.resize(tier.slots);
  tier.counts.name = std::move(name);
  tier.counts.budget = Bytes{tier.slots * slot_bytes_};
  tier.order = options_.eviction();
  if (tier.folder == nullptr) {
    tier.free.open({0, tier.slots}, {});
    for (std::uint32_t slot = tier.slots; slot > 0; --slot) tier.free.push(slot - 1);
    return {};
  }
  tier.disk.disks.resize(tier.folder->disks());
  tier.disk.written.resize(tier.slots);
  tier.free.open(tier.folder->starts(),
                 [folder = tier.folder.get()](std::uint32_t slot) { return folder->listed(slot); });
  std::vector<bool> taken(tier.slots);
  take_over_found(index, taken);
  for (std::uint32_t slot = tier.slots; slot > 0; --slot) {
    if (!taken[slot - 1]) tier.free.push(slot - 1);
  }
  return {};
}

void BlockTable::take_over_found(unsigned index, std::vector<bool>& taken) {
  Tier& tier = tiers_[index];
  const std::vector<Folder::Found> found = tier.folder->take_found();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool last = i + 1 == found.size() || found[i + 1].part.number == 0;
    if (any_size_) tier.next[found[i].slot] = last ? kNoSlot : found[i + 1].slot;
    taken[found[i].slot] = true;
    tier.disk.written[found[i].slot] = true;
  }
  for (const Folder::Found& each : found) {
    if (each.part.number > 0) continue;
    Entry& entry = make(each.key, each.part.block_bytes);
    fill(entry.copies[index], entry, index, each.slot);
    ready(entry.copies[index], index);
    ++counts_.reopened;
  }
}

void BlockTable::release_matches() {
  const TableLock lock(*this);
  if (std::exchange(matches_hold_nothing, true)) return;
  for (auto next = entries_.begin(); next != entries_.end();) {
    Entry& entry = (next++)->second;
    if (entry.pins == 0) continue;
    entry.pins = 1;
    unpin(entry);
  }
}

void BlockTable::release() {
  std::array<std::shared_ptr<const Object>, kMostTiers> buffers;  // unmapped later: that takes time
  std::unique_ptr<Folders> folder;
  const TableLock lock(*this);
  sharing.close();
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    tiers_[i].order.reset();
    buffers[i] = std::move(tiers_[i].buffer);
    if (tiers_[i].folder != nullptr) folder = std::move(tiers_[i].folder);
  }
  entries_.clear();
  released = true;
}

Entry* BlockTable::find(const Key& key) {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

StoreStats BlockTable::stats() {
  const TableLock lock(*this);
  StoreStats stats = counts_;
  for (const Tier& tier : tiers_) {
    stats.tiers.push_back(tier.counts);
    stats.tiers.back().blocks = released ? 0 : tier.copies;
    const std::size_t used = tier.slots - tier.free.size() - tier.free.aside() - tier.stuck;
    stats.tiers.back().used = Bytes{released ? 0 : used * slot_bytes_};
  }
  stats.pinned = Bytes{pinned_};
  if (!stats.last_error.empty()) stats.last_error_age = mover_.clock().now() - last_error_at_;
  return stats;
}

void BlockTable::match(std::span<const Key> keys, bool all, std::vector<Key>& found,
                       std::vector<unsigned>& tiers) {
  found.reserve(keys.size());
  tiers.reserve(keys.size());
  const TableLock lock(*this);
  if (closing) return;
  for (const Key& key : keys) {
    Entry* const entry = find(key);
    const auto tier = entry == nullptr ? std::nullopt : entry->fastest();
    if (!tier && !all) break;
    if (!tier) continue;
    pin(*entry);
    found.push_back(key);
    tiers.push_back(*tier);
  }
  counts_.matched += found.size();
  counts_.missed += keys.size() - found.size();
}

void BlockTable::unmatch(std::span<const Key> keys) {
  if (matches_hold_nothing) return;
  for (const Key& key : keys) unpin(*find(key));
}

std::vector<std::optional<Bytes>> BlockTable::sizes(std::span<const Key> keys) {
  std::vector<std::optional<Bytes>> found(keys.size());
  const TableLock lock(*this);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Entry* const entry = find(keys[i]);
    if (entry != nullptr && entry->fastest()) found[i] = Bytes{entry->bytes};
  }
  return found;
}

void BlockTable::touch(std::span<const Key> keys) {
  const TableLock lock(*this);
  for (const Key& key : keys) {
    if (Entry* const entry = find(key)) use_again(*entry);
  }
}

std::vector<Key> BlockTable::take_dropped() {
  const TableLock lock(*this);
  return std::exchange(dropped_, {});
}

void BlockTable::list_dropped(const Key& key) noexcept {
  if (!options_.list_dropped || dropped_.size() >= kMostDropped) return;
  try {
    dropped_.push_back(key);
  } catch (const std::bad_alloc&) {  // left out
  }
}

void BlockTable::pin(Entry& entry) {
  if (entry.pins++ == 0) pinned_ += entry.bytes;
}

void BlockTable::unpin(Entry& entry) {
  if (--entry.pins > 0) return;
  pinned_ -= entry.bytes;
  std::array<unsigned, kMostTiers> damaged{};
  std::size_t count = 0;
  for (unsigned tier = 0; tier < tiers_.size(); ++tier) {
    if (entry.copies[tier].state == Copy::State::damaged) damaged[count++] = tier;
  }
  for (std::size_t i = 0; i < count; ++i) drop(entry.copies[damaged[i]], damaged[i]);
}

std::optional<std::uint64_t> BlockTable::use(Entry& entry) {
  const std::uint64_t before = std::exchange(entry.used, ++uses_);
  if (before == 0) return std::nullopt;
  return uses_ - before;
}

void BlockTable::use_again(Entry& entry) {
  if (entry.removed) return;  // its old bytes are leaving
  use(entry);
  const auto tier = entry.fastest();
  if (tier && entry.copies[*tier].state == Copy::State::ready) {
    tiers_[*tier].order->touch(entry.copies[*tier]);
  }
}

bool BlockTable::in_memory(const Entry& entry) const {
  return for_cpus_ && entry.copies[*for_cpus_].served();
}

bool BlockTable::only_in_memory(const Entry& entry) const {
  const Copy& last = entry.copies[tiers_.size() - 1];
  return !last.served() && last.state != Copy::State::damaged && entry.fastest().has_value();
}

void BlockTable::fill(Copy& copy, Entry& entry, unsigned index, std::uint32_t slot) {
  copy.entry = &entry;
  copy.slot = slot;
  copy.state = Copy::State::filling;
  copy.visited = false;
  copy.side = tiers_[index].fills.begin();
  tiers_[index].filling += static_cast<unsigned>(slots_of(entry.bytes));
  ++tiers_[index].copies;
}

void BlockTable::enter_order(Copy& copy, unsigned index) {
  tiers_[index].order->insert(copy, {.key = copy.entry->key.low, .bytes = copy.entry->bytes});
}

void BlockTable::ready(Copy& copy, unsigned index) {
  DCHECK(copy.state == Copy::State::filling);
  Tier& tier = tiers_[index];
  const bool removed = copy.entry->removed;
  if (removed) ++tier.counts.dropped;
  if (removed && copy.entry->pins == 0) return drop(copy, index);
  copy.state = removed ? Copy::State::damaged : Copy::State::ready;
  tier.filling -= static_cast<unsigned>(slots_of(copy.entry->bytes));
  tier.fills.end(copy.side);
  if (removed) return;
  enter_order(copy, index);
  sharing.show(*copy.entry);
}

void BlockTable::damage(Copy& copy, unsigned index, bool torn) {
  if (copy.state != Copy::State::ready) return;
  copy.entry->torn = torn;
  Tier& tier = tiers_[index];
  tier.order->remove(copy);
  copy.state = Copy::State::damaged;
  sharing.show(*copy.entry);
  ++tier.counts.dropped;
  ++counts_.damaged;
}

void BlockTable::withdraw(Copy& copy, unsigned index) {
  tiers_[index].order->remove(copy);
  ++tiers_[index].counts.dropped;
  if (copy.entry->pins > 0) {
    copy.state = Copy::State::damaged;
  } else {
    drop(copy, index);
  }
}

void BlockTable::drop(Copy& copy, unsigned index, bool half) {
  Tier& tier = tiers_[index];
  const bool filling = copy.state == Copy::State::filling;
  const bool torn = copy.state == Copy::State::damaged && copy.entry->torn;
  if (filling) tier.filling -= static_cast<unsigned>(slots_of(copy.entry->bytes));
  --tier.copies;
  copy.state = Copy::State::none;
  sharing.show(*copy.entry);
  bool counted = filling;
  // A slot that got no block may still have the header of a block that was removed meanwhile.
  bool stale = false;
  if (filling && tier.folder != nullptr) {
    for (std::uint32_t slot = copy.slot; slot != kNoSlot; slot = tier.next_of(slot)) {
      stale = stale || tier.folder->listed(slot);
    }
  }
  if (tier.folder != nullptr && (half || stale || torn || copy.entry->removed)) {
    const bool failed = (half || torn) && !copy.entry->removed;
    for (std::uint32_t slot = copy.slot; slot != kNoSlot; slot = tier.next_of(slot)) {
      // A flush() that waits for the copy also waits for its headers.
      const std::uint8_t side = std::exchange(counted, false) ? copy.side : tier.fills.begin();
      unlister_.unlist({.number = slot, .failed = failed, .side = side});
    }
  } else {
    tier.give_back(copy.slot);
  }
  if (counted) tier.fills.end(copy.side);
  const Entry& entry = *copy.entry;
  const bool gone =
      !entry.waiting && entry.pins == 0 && std::ranges::all_of(entry.copies, [](const Copy& other) {
        return other.state == Copy::State::none;
      });
  if (!gone) return;
  if (!filling && !entry.removed) list_dropped(entry.key);
  entries_.erase(Key{entry.key});
}

void BlockTable::note(const Error& error) noexcept {
  last_error_at_ = mover_.clock().now();
  try {
    counts_.last_error = error.message;
  } catch (const std::bad_alloc&) {
    counts_.last_error = kNoMemory.message;
  }
}

}  // namespace headrace::kvcache
