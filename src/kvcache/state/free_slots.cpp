// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/free_slots.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace headrace::kvcache {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

}  // namespace

void FreeSlots::open(std::uint32_t slots, Listed listed) {
  listed_ = std::move(listed);
  usable_.reserve(slots);
  if (!listed_) return;
  aside_.reserve(slots);
  place_.resize(slots);
  heads_.assign(std::bit_ceil(std::size_t{slots}), kNone);
  next_.resize(slots);
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

std::optional<std::uint32_t> FreeSlots::pop_aside(
    const std::function<bool(std::uint32_t)>& chosen) {
  const auto found = std::ranges::find_if(aside_, chosen);
  if (found == aside_.end()) return std::nullopt;
  const std::uint32_t slot = *found;
  forget(slot);
  unlink(slot);
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
  Slots& slots = at < usable_.size() && usable_[at] == slot ? usable_ : aside_;
  slots[at] = slots.back();
  place_[slots[at]] = at;
  slots.pop_back();
}

void FreeSlots::set_aside_if(const std::function<bool(std::uint32_t)>& chosen) {
  std::size_t kept = 0;
  for (const std::uint32_t slot : usable_) {
    Slots& slots = chosen(slot) ? aside_ : usable_;
    if (&slots == &aside_) {
      aside_.push_back(slot);
    } else {
      usable_[kept++] = slot;
    }
    place_[slot] = static_cast<std::uint32_t>(&slots == &aside_ ? aside_.size() - 1 : kept - 1);
  }
  usable_.resize(kept);
}

void FreeSlots::take_back() {
  if (aside_.empty()) return;
  usable_.insert(usable_.begin(), aside_.begin(), aside_.end());
  aside_.clear();
  for (std::uint32_t at = 0; at < usable_.size(); ++at) place_[usable_[at]] = at;
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
