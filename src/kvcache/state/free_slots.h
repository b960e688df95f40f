// SPDX-License-Identifier: Apache-2.0
// The free slots of a tier, and which blocks the headers of a folder's free slots still name.
//
// A tier may have several disks, each with its own slots; memory counts as one disk. All memory is
// allocated by open(). Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "headrace/kvcache/store.h"

namespace headrace::kvcache {

// The number of the disk that has the slot. `starts`: the first slot of each disk, then the number
// of slots.
inline unsigned disk_with(const std::vector<std::uint32_t>& starts, std::uint32_t slot) {
  unsigned disk = 0;
  while (slot >= starts[disk + 1]) ++disk;
  return disk;
}

class FreeSlots {
 public:
  // The key that the header of a slot names, if any. Constant while the slot is free.
  using Listed = std::function<std::optional<Key>(std::uint32_t slot)>;
  // No slot is free. `starts`: see disk_with(). `listed` is empty for a tier of memory.
  void open(std::vector<std::uint32_t> starts, Listed listed);

  bool empty() const { return size() == 0; }
  // Usable slots.
  std::size_t size() const;
  std::size_t size(unsigned disk) const { return disks_[disk].usable.size(); }
  // Slots that are free, but not usable for now.
  std::size_t aside() const;
  std::size_t aside(unsigned disk) const { return disks_[disk].aside.size(); }
  unsigned disk_of(std::uint32_t slot) const { return disk_with(starts_, slot); }
  // The disk with the largest part of its slots usable, so that disks fill evenly. Empty if none
  // has `count` usable slots.
  std::optional<unsigned> emptiest(std::size_t count = 1) const;

  void push(std::uint32_t slot) { add(slot, disks_[disk_of(slot)].usable); }
  void push_aside(std::uint32_t slot) { add(slot, disks_[disk_of(slot)].aside); }
  // The slot of the last push to the disk that has not been taken.
  std::optional<std::uint32_t> pop(unsigned disk) { return take(disks_[disk].usable); }
  std::optional<std::uint32_t> pop_aside(unsigned disk) { return take(disks_[disk].aside); }
  // From the emptiest disk.
  std::optional<std::uint32_t> pop();
  // Sets usable slots of the disk aside.
  void set_aside_if(unsigned disk, const std::function<bool(std::uint32_t slot)>& chosen);
  // Slots of the disk that are set aside become usable, after the others.
  void take_back(unsigned disk);
  // Takes the slots whose header names the key, usable or aside, and passes each to `taken`. Visits
  // only slots with a similar key.
  void take_listed(const Key& key, const std::function<void(std::uint32_t slot)>& taken);
  // Takes all slots whose header names a block.
  void take_listed(const std::function<void(std::uint32_t slot)>& taken);

 private:
  using Slots = std::vector<std::uint32_t>;
  struct Disk {
    Slots usable;
    Slots aside;
  };
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
  Slots starts_;
  std::vector<Disk> disks_;
  Slots place_;  // by slot: its index in its list
  // Chains of slots whose keys have similar halves, XORed: the first of each, and the next of each
  // slot.
  Slots heads_;
  Slots next_;
};

}  // namespace headrace::kvcache
