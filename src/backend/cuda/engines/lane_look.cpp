// SPDX-License-Identifier: Apache-2.0
// The part of lanes that a waiting thread does itself. It saves a callback of the driver and two
// wake-ups, which take some 25 microseconds more than a copy of a few KiB.

#include <algorithm>

#include "backend/cuda/engines/lane.h"

namespace headrace::cuda {
namespace {

// Time that a thread spins for copies that are due now or soon.
constexpr Nanoseconds kSpin = std::chrono::microseconds{50};
// Time before they are due at which it comes back, since a sleep ends late.
constexpr Nanoseconds kEarly = std::chrono::microseconds{100};
// Maximum questions in one call, for a clock that stands still.
constexpr int kMostQuestions = 256;
// The time of a smaller group shows the cost of the call more than the rate of the link.
constexpr std::uint64_t kFewest = 1ULL << 20;

}  // namespace

Backend::Look Lane::look(Nanoseconds most) {
  // Pairs with the release of begin().
  if (!begun_.load(std::memory_order_acquire) || looking_.exchange(true)) return {};
  const Backend::Look looked = look_alone(most);
  looking_.store(false);
  return looked;
}

Backend::Look Lane::look_alone(Nanoseconds most) {
  const Nanoseconds begun = options_.clock->now();
  Dues dues = dues_now(begun);
  if (dues.first == Nanoseconds::max()) return {};
  if (dues.first - begun > kSpin + kEarly) return {.again = dues.last - begun - kEarly};
  const CurrentContext current(*context_);
  if (current.result() != CUDA_SUCCESS) return {};
  const Nanoseconds end = std::min(begun + most, std::max(begun, dues.first) + kSpin);
  for (int i = 0; i < kMostQuestions; ++i) {
    const Nanoseconds now = options_.clock->now();
    const auto found = look_once(now);
    if (!found) return {};
    if (*found > 0) return {.found = *found};
    if (now >= end) break;
  }
  const Nanoseconds now = options_.clock->now();
  dues = dues_now(now);
  if (dues.first == Nanoseconds::max() || dues.last - now <= kSpin + kEarly) return {};
  return {.again = dues.last - now - kEarly};
}

// Returns when the next group that a look may end is due, and when the last of all.
Lane::Dues Lane::dues_now(Nanoseconds now) {
  Dues dues;
  std::array<Nanoseconds, kDirections> due{};
  const MutexLock lock(mailbox_->mutex);
  for (const Group* group : mailbox_->flying) {
    const auto direction = static_cast<std::size_t>(group->direction);
    Nanoseconds& at = due[direction];
    const Nanoseconds free = at == Nanoseconds{0} ? mailbox_->ended[direction] : at;
    const double takes = static_cast<double>(group->bytes) / mailbox_->rate[direction];
    at = std::max(free, group->launched) + Nanoseconds{static_cast<std::int64_t>(takes)};
    if (!group->direct || group->uncalled) continue;
    dues.first = std::min(dues.first, std::max(at, now));
    dues.last = std::max(dues.last, at);
  }
  return dues;
}

// Asks for the oldest group of each direction, and ends one that is done. Returns the number of its
// pieces; nullopt: there is no group to look for.
std::optional<std::size_t> Lane::look_once(Nanoseconds now) {
  struct Asked {
    Group* group = nullptr;
    std::uint64_t number = 0;
  };
  std::array<Asked, kDirections> oldest{};
  {
    const MutexLock lock(mailbox_->mutex);
    // Their callbacks are held up, so the lane's own looks handle the rest.
    if (mailbox_->found >= options_.max_pieces) return std::nullopt;
    for (Group* group : mailbox_->flying) {
      Asked& asked = oldest[static_cast<std::size_t>(group->direction)];
      if (asked.group == nullptr) asked = {group, group->number};
    }
  }
  Mailbox& box = *mailbox_;
  // The group has neither ended nor been used again: the event is its own, and is behind its
  // copies.
  const auto is_there = [&](const Asked& asked) REQUIRES(box.mutex) {
    if (std::ranges::find(box.flying, asked.group) == box.flying.end()) return false;
    const Group& group = *asked.group;
    return group.number == asked.number && group.direct && group.marked && !group.uncalled;
  };
  bool any = false;
  for (const Asked& asked : oldest) {
    if (asked.group == nullptr) continue;
    {
      const MutexLock lock(box.mutex);
      if (!is_there(asked)) continue;
    }
    any = true;
    if (driver_.cuEventQuery(asked.group->event->handle()) != CUDA_SUCCESS) continue;
    Task* first = nullptr;
    {
      const MutexLock lock(box.mutex);
      if (!is_there(asked)) continue;
      std::erase(box.flying, asked.group);
      asked.group->found = true;
      ++box.found;
      first = std::exchange(asked.group->first, nullptr);
      note_rate(box, *asked.group, now);
    }
    std::size_t found = 0;
    each_task(first, [&](Task& task) {
      ++found;
      stream_ended(task);
    });
    return found;
  }
  return any ? std::optional<std::size_t>(0) : std::nullopt;
}

// Updates the link's rate from a group that was found done. It does so only if the link had no
// other group, or the group before it was found done too.
void Lane::note_rate(Mailbox& box, const Group& group, Nanoseconds now) {
  const auto direction = static_cast<std::size_t>(group.direction);
  const bool known = group.before == 0 || group.before == box.last[direction];
  const Nanoseconds began = std::max(box.ended[direction], group.launched);
  box.ended[direction] = now;
  box.last[direction] = group.number;
  if (!known || group.bytes < kFewest || now <= began) return;
  double& rate = box.rate[direction];
  const double seen = static_cast<double>(group.bytes) / static_cast<double>((now - began).count());
  rate = std::clamp((rate + seen) / 2, 0.1, 1000.0);
}

}  // namespace headrace::cuda
