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

bool Tier::closed(std::uint32_t slot) const {
  return folder != nullptr && disk.disks[folder->disk_of(slot)].closed > Nanoseconds{0};
}

bool Tier::all_closed() const {
  return folder != nullptr && std::ranges::all_of(disk.disks, [](const Disk& each) {
           return each.closed > Nanoseconds{0};
         });
}

bool Tier::any_refuses() const {
  return std::ranges::any_of(
      disk.disks, [](const Disk& each) { return each.full || each.closed > Nanoseconds{0}; });
}

bool Tier::refused(std::uint32_t slot) const {
  if (folder == nullptr) return false;
  return closed(slot) || (disk.disks[folder->disk_of(slot)].full && !disk.written[slot]);
}

void Tier::sort_free() {
  free.take_back();
  free.set_aside_if([&](std::uint32_t slot) REQUIRES(kTable) { return refused(slot); });
}

void Tier::free_slot(std::uint32_t slot) {
  refused(slot) ? free.push_aside(slot) : free.push(slot);
}

std::optional<std::uint32_t> Tier::take_free(Nanoseconds now) {
  if (const auto slot = free.pop()) return slot;
  for (unsigned number = 0; number < disk.disks.size(); ++number) {
    Disk& each = disk.disks[number];
    if (!each.full || each.closed > Nanoseconds{0} || now < each.again) continue;
    each.again = now + kRest;
    const auto slot =
        free.pop_aside([&](std::uint32_t aside) { return folder->disk_of(aside) == number; });
    if (!slot) continue;
    each.trying = slot;
    return slot;
  }
  return std::nullopt;
}

void Tier::disk_refused(std::uint32_t slot, const Error& why, Nanoseconds now) {
  Disk& of_slot = disk_of(slot);
  const bool full = why.code == ErrorCode::exhausted;
  const bool was_full = of_slot.full;
  const bool was_closed = closed(slot);
  if (full) of_slot.again = now + kRest;
  if (full && !disk.written[slot]) {
    of_slot.full = true;
    of_slot.trying.reset();
  } else if (full || folder->disks() > 1) {  // some file systems write each block anew elsewhere
    of_slot.closed = now + kRest;
    of_slot.failed = of_slot.failed || !full;
  } else {
    return;
  }
  if (was_full == of_slot.full && was_closed == closed(slot)) return;  // they are aside already
  free.set_aside_if([&](std::uint32_t each) REQUIRES(kTable) { return refused(each); });
}

void Tier::disk_has(std::uint32_t slot) {
  disk.written[slot] = true;
  if (disk_of(slot).trying != slot) return;
  disk_of(slot) = {};
  sort_free();
}

void Tier::reopen_due(Nanoseconds now) {
  bool any = false;
  for (Disk& each : disk.disks) {
    if (each.closed == Nanoseconds{0} || now < each.closed) continue;
    each.closed = Nanoseconds{0};
    each.failed = false;
    any = true;
  }
  if (any) sort_free();
}

void Tier::reopen_disks() {
  for (Disk& each : disk.disks) {
    each = each.failed ? Disk{.closed = each.closed, .failed = true} : Disk{};
  }
  sort_free();
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

Status BlockTable::open_tier(unsigned index) {
  const TierOptions& options = options_.tiers[index];
  const Machine& machine = mover_.machine();
  Tier& tier = tiers_[index];
  tier.slots = static_cast<std::uint32_t>(options.budget.value / slot_bytes_);
  tier.slot_bytes = slot_bytes_;
  std::string name = options.folder.string();
  if (options.folder.empty()) {
    if (storage_of(machine, options.memory) != nullptr) {
      return fail(ErrorCode::invalid,
                  "tier {} is memory in a file on storage; give a folder there, which is kept",
                  index);
    }
    const Bytes bytes{tier.slots * slot_bytes_};
    HEADRACE_TRY(tier.buffer, options_.shared && index == 0
                                  ? sharing.allocate(machine, bytes, options.memory)
                                  : allocate(machine, bytes, options.memory));
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
  tier.counts.name = std::move(name);
  tier.counts.budget = Bytes{tier.slots * slot_bytes_};
  tier.order = options_.eviction();
  if (tier.folder == nullptr) {
    tier.free.open(tier.slots, {});
    for (std::uint32_t slot = tier.slots; slot > 0; --slot) tier.free.push(slot - 1);
    return {};
  }
  tier.disk.disks.resize(tier.folder->disks());
  tier.disk.written.resize(tier.slots);
  tier.free.open(tier.slots,
                 [folder = tier.folder.get()](std::uint32_t slot) { return folder->listed(slot); });
  std::vector<bool> taken(tier.slots);
  take_over_found(index, taken);
  const std::vector<std::uint32_t> order = tier.folder->order();
  for (auto slot = order.rbegin(); slot != order.rend(); ++slot) {
    if (!taken[*slot]) tier.free.push(*slot);
  }
  return {};
}

void BlockTable::take_over_found(unsigned index, std::vector<bool>& taken) {
  Tier& tier = tiers_[index];
  for (const Folder::Found& found : tier.folder->take_found()) {
    Entry& entry = make(found.key);
    fill(entry.copies[index], entry, index, found.slot);
    ready(entry.copies[index], index);
    taken[found.slot] = true;
    tier.disk.written[found.slot] = true;
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
  std::array<std::unique_ptr<Buffer>, kMostTiers> buffers;  // unmapped later: that takes time
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
    stats.tiers.back().blocks =
        released ? 0 : tier.slots - tier.free.size() - tier.free.aside() - tier.stuck;
    stats.tiers.back().used = Bytes{stats.tiers.back().blocks * slot_bytes_};
  }
  stats.pinned = Bytes{pinned_ * block_bytes_};
  stats.last_error = last_error_;
  if (!last_error_.empty()) stats.last_error_age = mover_.clock().now() - last_error_at_;
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

std::vector<bool> BlockTable::contains(std::span<const Key> keys) {
  std::vector<bool> there(keys.size());
  const TableLock lock(*this);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Entry* const entry = find(keys[i]);
    there[i] = entry != nullptr && entry->fastest().has_value();
  }
  return there;
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
  if (entry.pins++ == 0) ++pinned_;
}

void BlockTable::unpin(Entry& entry) {
  if (--entry.pins > 0) return;
  --pinned_;
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
  ++tiers_[index].filling;
}

void BlockTable::enter_order(Copy& copy, unsigned index) {
  tiers_[index].order->insert(copy, {.key = copy.entry->key.low, .bytes = block_bytes_});
}

void BlockTable::ready(Copy& copy, unsigned index) {
  DCHECK(copy.state == Copy::State::filling);
  Tier& tier = tiers_[index];
  const bool removed = copy.entry->removed;
  if (removed) ++tier.counts.dropped;
  if (removed && copy.entry->pins == 0) return drop(copy, index);
  copy.state = removed ? Copy::State::damaged : Copy::State::ready;
  --tier.filling;
  tier.fills.end(copy.side);
  if (removed) return;
  enter_order(copy, index);
  sharing.show(*copy.entry);
}

void BlockTable::damage(Copy& copy, unsigned index) {
  if (copy.state != Copy::State::ready) return;
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
  if (filling) --tier.filling;
  copy.state = Copy::State::none;
  sharing.show(*copy.entry);
  bool counted = filling;
  // A slot that got no block may still have the header of a block that was removed meanwhile.
  const bool stale = filling && tier.folder != nullptr && tier.folder->listed(copy.slot);
  if (tier.folder != nullptr && (half || stale || copy.entry->removed)) {
    // A flush() that waits for the copy also waits for its header.
    const std::uint8_t side = std::exchange(counted, false) ? copy.side : tier.fills.begin();
    unlister_.unlist({.number = copy.slot, .failed = half && !copy.entry->removed, .side = side});
  } else {
    tier.free_slot(copy.slot);
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
    last_error_ = error.message;
  } catch (const std::bad_alloc&) {
    last_error_ = kNoMemory.message;
  }
}

}  // namespace headrace::kvcache
