// SPDX-License-Identifier: Apache-2.0
// The free slots of a tier, and which blocks the headers of a folder's free slots still name.
//
// All memory is allocated by open(). Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "headrace/kvcache/store.h"

namespace headrace::kvcache {

class FreeSlots {
 public:
  // The key that the header of a slot names, if any. Constant while the slot is free.
  using Listed = std::function<std::optional<Key>(std::uint32_t slot)>;
  // No slot is free. `listed` is empty for a tier of memory.
  void open(std::uint32_t slots, Listed listed);

  bool empty() const { return usable_.empty(); }
  // Usable slots.
  std::size_t size() const { return usable_.size(); }
  // Slots that are free, but not usable for now.
  std::size_t aside() const { return aside_.size(); }

  void push(std::uint32_t slot) { add(slot, usable_); }
  void push_aside(std::uint32_t slot) { add(slot, aside_); }
  // The slot of the last push that has not been taken.
  std::optional<std::uint32_t> pop() { return take(usable_); }
  // One of the slots set aside that are `chosen`.
  std::optional<std::uint32_t> pop_aside(const std::function<bool(std::uint32_t slot)>& chosen);
  // Sets usable slots aside.
  void set_aside_if(const std::function<bool(std::uint32_t slot)>& chosen);
  // Slots set aside become usable, after the others.
  void take_back();
  // Takes the slots whose header names the key, usable or aside, and passes each to `taken`. Visits
  // only slots with a similar key.
  void take_listed(const Key& key, const std::function<void(std::uint32_t slot)>& taken);
  // Takes all slots whose header names a block.
  void take_listed(const std::function<void(std::uint32_t slot)>& taken);

 private:
  using Slots = std::vector<std::uint32_t>;
  void add(std::uint32_t slot, Slots& slots);
  std::optional<std::uint32_t> take(Slots& slots);
  // Takes the slot out of its list, but not out of its chain.
  void unlink(std::uint32_t slot);
  std::uint32_t& head_of(const Key& key) {
    return heads_[(key.low ^ key.high) & (heads_.size() - 1)];
  }
  // Takes the slot out of the chain of the key that its header names.
  void forget(std::uint32_t slot);

  Listed listed_;
  Slots usable_;
  Slots aside_;
  Slots place_;  // by slot: its index in its list
  // Chains of slots whose keys have similar halves, XORed: the first of each, and the next of each
  // slot.
  Slots heads_;
  Slots next_;
};

}  // namespace headrace::kvcache
