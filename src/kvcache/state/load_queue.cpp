// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/load_queue.h"

#include <utility>

namespace headrace::kvcache {
namespace {

// One layer is read while another is verified.
constexpr unsigned kFewestReading = 2;
// The most layers of other loads that start before one of the oldest load.
constexpr unsigned kMostPassing = 7;
// While first layers of at least this part of the bytes read at a time are being read, higher
// layers wait. Nothing hides a first layer, and the device would give it only a share of its rate.
constexpr std::uint64_t kFirstPart = 8;

}  // namespace

void LoadQueue::push(LoadState& load) noexcept {
  const MutexLock lock(mutex_);
  in_line_.push(load);
}

bool LoadQueue::push_again(LoadGroup& group) noexcept {
  const MutexLock lock(mutex_);
  if (group.load->cancelled.load()) return false;
  again_.push(group);
  return true;
}

LoadGroup* LoadQueue::next() noexcept {
  const MutexLock lock(mutex_);
  if (groups_ >= kFewestReading && bytes_ >= ahead_.value) return nullptr;
  if (Job* const again = again_.pop()) return &take_turn(static_cast<LoadGroup&>(*again));
  if (in_line_.empty()) return nullptr;
  auto* const oldest = static_cast<LoadState*>(in_line_.first());
  LoadState* chosen = oldest;
  for (Job* job = oldest->next; job != nullptr && passed_ < kMostPassing; job = job->next) {
    auto* const load = static_cast<LoadState*>(job);
    if (load->next_group < chosen->next_group) chosen = load;
  }
  const bool first = chosen->next_group == 0;
  if (!first && first_bytes_ > ahead_.value / kFirstPart && passed_ < kMostPassing) {
    return nullptr;
  }
  passed_ = chosen == oldest ? 0 : passed_ + 1;
  LoadGroup& group = chosen->groups[chosen->next_group++];
  if (chosen->next_group == chosen->groups.size()) in_line_.remove(*chosen);
  return &take_turn(group);
}

LoadGroup& LoadQueue::take_turn(LoadGroup& group) noexcept {
  group.reading = true;
  ++groups_;
  bytes_ += group.bytes;
  if (group.first == 0) first_bytes_ += group.bytes;
  return group;
}

bool LoadQueue::give_back(LoadGroup& group, bool unused) noexcept {
  const MutexLock lock(mutex_);
  if (!std::exchange(group.reading, false)) return false;
  if (unused && passed_ > 0) --passed_;  // the device did nothing for it
  --groups_;
  bytes_ -= group.bytes;
  if (group.first == 0) first_bytes_ -= group.bytes;
  return true;
}

std::size_t LoadQueue::remove(LoadState& load, JobList& again) noexcept {
  const MutexLock lock(mutex_);
  for (LoadGroup& group : load.groups) {
    if (!again_.empty() && again_.remove(group)) again.push(group);
  }
  const std::size_t all = load.groups.size();
  return in_line_.remove(load) ? std::exchange(load.next_group, all) : all;
}

}  // namespace headrace::kvcache
