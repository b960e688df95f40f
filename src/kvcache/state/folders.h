// SPDX-License-Identifier: Apache-2.0
// The folders of one tier, each on a disk of its own, as one row of slots.
//
// The slots of each folder follow those of the folder before. Any slot may have any block: the
// table finds it, so the folders need no rule by which a key chooses one. Each folder lists its own
// blocks, and can be opened without the others.
//
// Thread-compatible; different slots may be used by different threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvcache/state/folder.h"
#include "kvcache/state/free_slots.h"

namespace headrace::kvcache {

class Folders {
 public:
  // Errors: see Store::open().
  static Result<std::unique_ptr<Folders>> open(Mover& mover, const TierOptions& options,
                                               const Geometry& geometry, NodeId memory);

  std::uint32_t slots() const { return starts_.back(); }
  unsigned disks() const { return static_cast<unsigned>(folders_.size()); }
  const std::vector<std::uint32_t>& starts() const { return starts_; }
  // The extent of `bytes` bytes at offset `from` within the slot.
  Extent in_slot(std::uint32_t slot, std::uint64_t from, Bytes bytes) const;

  // The functions below are those of Folder.
  std::vector<Folder::Found> take_found();
  Status still_there();
  std::uint64_t mend(std::uint32_t slot) noexcept { return of(slot).mend(); }
  std::uint64_t mends(std::uint32_t slot) const { return of(slot).mends(); }
  Status sync();
  // The number of a block that is written now.
  std::uint64_t next_sequence() { return sequence_.fetch_add(1) + 1; }
  void describe(std::uint32_t slot, const Key& key, const Folder::Part& part,
                std::span<const std::byte> bytes) {
    of(slot).describe(local(slot), key, part, bytes);
  }
  MovePair header(std::uint32_t slot) const { return of(slot).header(local(slot)); }
  std::optional<Key> listed(std::uint32_t slot) const { return of(slot).listed(local(slot)); }
  void blank(std::uint32_t slot) { of(slot).blank(local(slot)); }
  bool fits(std::uint32_t slot, const Key& key, unsigned layer,
            std::span<const std::byte> bytes) const {
    return of(slot).fits(local(slot), key, layer, bytes);
  }
  bool trusts(std::uint32_t slot, const Key& key) const {
    return of(slot).trusts(local(slot), key);
  }

 private:
  Folders(const Geometry& geometry, std::uint64_t slot_bytes)
      : geometry_(geometry), slot_bytes_(slot_bytes) {}
  Folder& of(std::uint32_t slot) const { return *folders_[disk_with(starts_, slot)]; }
  std::uint32_t local(std::uint32_t slot) const { return slot - starts_[disk_with(starts_, slot)]; }

  const Geometry geometry_;
  const std::uint64_t slot_bytes_;
  // The number of the last block that was written, in any folder. It starts at the wall clock (ns),
  // so that blocks of a folder that was left out are older than those written meanwhile.
  std::atomic<std::uint64_t> sequence_{0};
  std::vector<std::unique_ptr<Folder>> folders_;
  std::vector<std::uint32_t> starts_{0};  // see disk_with()
};

}  // namespace headrace::kvcache
