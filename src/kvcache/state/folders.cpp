// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/folders.h"

#include <algorithm>
#include <chrono>

namespace headrace::kvcache {

Result<std::unique_ptr<Folders>> Folders::open(Mover& mover, const TierOptions& options,
                                               const Geometry& geometry, NodeId memory) {
  const std::uint64_t slot_bytes = Folder::slot_bytes(geometry).value;
  std::unique_ptr<Folders> folders(new Folders(geometry, slot_bytes));
  std::vector<FolderOptions> all{{options.folder, options.budget}};
  all.insert(all.end(), options.more_folders.begin(), options.more_folders.end());
  const Nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  auto sequence = static_cast<std::uint64_t>(std::max(now, Nanoseconds{0}).count());
  for (const FolderOptions& each : all) {
    const auto slots = static_cast<std::uint32_t>(each.budget.value / slot_bytes);
    HEADRACE_TRY(auto folder, Folder::claim(each.folder, geometry, slots, options));
    folders->folders_.push_back(std::move(folder));
    folders->starts_.push_back(folders->starts_.back() + slots);
  }
  // No folder is changed before all are locked and checked.
  for (const auto& folder : folders->folders_) {
    HEADRACE_TRY_STATUS(folder->open(mover, memory));
    sequence = std::max(sequence, folder->last_found());
  }
  folders->sequence_ = sequence;
  return folders;
}

Extent Folders::in_slot(std::uint32_t slot, std::uint64_t from, Bytes bytes) const {
  return {&of(slot).file(), local(slot) * slot_bytes_ + from, bytes};
}

std::vector<Folder::Found> Folders::take_found() {
  std::vector<Folder::Found> found;
  for (unsigned disk = 0; disk < disks(); ++disk) {
    for (Folder::Found each : folders_[disk]->take_found()) {
      each.slot += starts_[disk];
      found.push_back(each);
    }
  }
  if (disks() > 1) Folder::keep_latest(found, geometry_);
  return found;
}

Status Folders::still_there() {
  Status first;
  for (const auto& folder : folders_) {
    Status there = folder->still_there();
    if (first) first = std::move(there);
  }
  return first;
}

Status Folders::sync() {
  Status first;
  for (const auto& folder : folders_) {
    Status synced = folder->sync();
    if (first) first = std::move(synced);
  }
  return first;
}

}  // namespace headrace::kvcache
