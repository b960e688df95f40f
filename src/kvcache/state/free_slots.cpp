// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/free_slots.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace headrace::kvcache {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

}  // namespace

void FreeSlots::open(std::vector<std::uint32_t> starts, Listed listed) {
  listed_ = std::move(listed);
  starts_ = std::move(starts);
  disks_.resize(starts_.size() - 1);
  for (std::size_t disk = 0; disk < disks_.size(); ++disk) {
    const std::uint32_t slots = starts_[disk + 1] - starts_[disk];
    disks_[disk].usable.reserve(slots);
    if (listed_) disks_[disk].aside.reserve(slots);
  }
  if (!listed_) return;
  place_.resize(starts_.back());
  heads_.assign(std::bit_ceil(std::size_t{starts_.back()}), kNone);
  next_.resize(starts_.back());
}

std::size_t FreeSlots::size() const {
  std::size_t sum = 0;
  for (const Disk& disk : disks_) sum += disk.usable.size();
  return sum;
}

std::size_t FreeSlots::aside() const {
  std::size_t sum = 0;
  for (const Disk& disk : disks_) sum += disk.aside.size();
  return sum;
}

std::optional<unsigned> FreeSlots::emptiest(std::size_t count) const {
  std::optional<unsigned> best;
  double most = 0;
  for (unsigned disk = 0; disk < disks_.size(); ++disk) {
    if (size(disk) < count) continue;
    const double part = static_cast<double>(size(disk)) / (starts_[disk + 1] - starts_[disk]);
    if (best && part <= most) continue;
    best = disk;
    most = part;
  }
  return best;
}

std::optional<std::uint32_t> FreeSlots::pop() {
  const auto disk = emptiest();
  return disk ? pop(*disk) : std::nullopt;
}

void FreeSlots::add(std::uint32_t slot, Slots& slots) {
  slots.push_back(slot);
  if (!listed_) return;
  place_[slot] = static_cast<std::uint32_t>(slots.size() - 1);
  if (const auto key = listed_(slot)) {
    std::uint32_t& head = head_of(*key);
    next_[slot] = head;
    head = slot;
  }
}

std::optional<std::uint32_t> FreeSlots::take(Slots& slots) {
  if (slots.empty()) return std::nullopt;
  const std::uint32_t slot = slots.back();
  slots.pop_back();
  if (listed_) forget(slot);
  return slot;
}

void FreeSlots::forget(std::uint32_t slot) {
  const auto key = listed_(slot);
  if (!key) return;
  std::uint32_t* at = &head_of(*key);
  while (*at != slot) {
    CHECK(*at != kNone);  // the header would have changed
    at = &next_[*at];
  }
  *at = next_[slot];
}

void FreeSlots::unlink(std::uint32_t slot) {
  const std::uint32_t at = place_[slot];
  auto& [usable, aside] = disks_[disk_of(slot)];
  Slots& slots = at < usable.size() && usable[at] == slot ? usable : aside;
  slots[at] = slots.back();
  place_[slots[at]] = at;
  slots.pop_back();
}

void FreeSlots::set_aside_if(unsigned disk, const std::function<bool(std::uint32_t)>& chosen) {
  auto& [usable, aside] = disks_[disk];
  std::uint32_t kept = 0;
  for (const std::uint32_t slot : usable) {
    if (chosen(slot)) {
      place_[slot] = static_cast<std::uint32_t>(aside.size());
      aside.push_back(slot);
    } else {
      place_[slot] = kept;
      usable[kept++] = slot;
    }
  }
  usable.resize(kept);
}

void FreeSlots::take_back(unsigned disk) {
  auto& [usable, aside] = disks_[disk];
  if (aside.empty()) return;
  usable.insert(usable.begin(), aside.begin(), aside.end());
  aside.clear();
  for (std::uint32_t at = 0; at < usable.size(); ++at) place_[usable[at]] = at;
}

void FreeSlots::take_listed(const Key& key, const std::function<void(std::uint32_t)>& taken) {
  if (!listed_) return;
  for (std::uint32_t* at = &head_of(key); *at != kNone;) {
    const std::uint32_t slot = *at;
    if (listed_(slot) != key) {
      at = &next_[slot];
      continue;
    }
    *at = next_[slot];
    unlink(slot);
    taken(slot);
  }
}

void FreeSlots::take_listed(const std::function<void(std::uint32_t)>& taken) {
  for (std::uint32_t& head : heads_) {
    for (; head != kNone; head = next_[head]) {
      unlink(head);
      taken(head);
    }
  }
}

}  // namespace headrace::kvcache
