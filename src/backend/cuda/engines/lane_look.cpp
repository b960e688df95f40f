// SPDX-License-Identifier: Apache-2.0
// Lanes: what a thread that waits does for itself. A callback of the driver and two wake-ups take
// some 25 microseconds more than the copy of a few KiB does.

#include <algorithm>

#include "backend/cuda/engines/lane.h"

namespace headrace::cuda {
namespace {

// A thread spins so long for copies that should be done by now or soon.
constexpr Nanoseconds kSpin = std::chrono::microseconds{50};
// And comes back so long before they should be: a sleep ends late.
constexpr Nanoseconds kEarly = std::chrono::microseconds{100};
// Questions in one call, under a clock that stands still.
constexpr int kMostQuestions = 256;
// Of a smaller group the time says more about the call than about the link.
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
  Nanoseconds first = Nanoseconds::max();  // when the next group should be done
  Nanoseconds last{0};                     // and the last of that direction
  {
    const MutexLock lock(mailbox_->mutex);
    for (const Group* group : mailbox_->flying) {
      if (!group->direct || group->uncalled) continue;
      first = std::min(first, group->due);
      last = std::max(last, group->due);
    }
  }
  if (first == Nanoseconds::max()) return {};
  if (first - begun > kSpin + kEarly) return {.again = last - begun - kEarly};
  const CurrentContext current(*context_);
  if (current.result() != CUDA_SUCCESS) return {};
  const Nanoseconds end = std::min(begun + most, std::max(begun, first) + kSpin);
  for (int i = 0; i < kMostQuestions; ++i) {
    const Nanoseconds now = options_.clock->now();
    const auto found = look_once(now);
    if (!found) return {};
    if (*found > 0) return {.found = *found};
    if (now >= end) break;
  }
  const Nanoseconds left = last - options_.clock->now() - kEarly;
  if (left <= kSpin) return {};
  return {.again = left};
}

// Asks for the oldest group of each direction, and ends one that is done. How many pieces that were;
// nullopt: there is nothing to look for.
std::optional<std::size_t> Lane::look_once(Nanoseconds now) {
  struct Asked {
    Group* group = nullptr;
    std::uint64_t number = 0;
  };
  std::array<Asked, kDirections> oldest{};
  {
    const MutexLock lock(mailbox_->mutex);
    // Their callbacks are held up: the lane's own looks see to what comes.
    if (mailbox_->found >= options_.max_pieces) return std::nullopt;
    for (Group* group : mailbox_->flying) {
      Asked& asked = oldest[static_cast<std::size_t>(group->direction)];
      if (asked.group == nullptr) asked = {group, group->number};
    }
  }
  bool any = false;
  for (const Asked& asked : oldest) {
    if (asked.group == nullptr) continue;
    Task* first = nullptr;
    {
      // Neither ended nor used again since: its event is this one's, and stands behind its copies.
      const auto is_there = [&]() REQUIRES(mailbox_->mutex) {
        const auto& flying = mailbox_->flying;
        return std::ranges::find(flying, asked.group) != flying.end() &&
               asked.group->number == asked.number && asked.group->direct &&
               asked.group->marked && !asked.group->uncalled;
      };
      {
        const MutexLock lock(mailbox_->mutex);
        if (!is_there()) continue;
      }
      any = true;
      if (driver_.cuEventQuery(asked.group->event->handle()) != CUDA_SUCCESS) continue;
      const MutexLock lock(mailbox_->mutex);
      if (!is_there()) continue;
      std::erase(mailbox_->flying, asked.group);
      asked.group->found = true;
      ++mailbox_->found;
      first = std::exchange(asked.group->first, nullptr);
      note_rate(*asked.group, now);
    }
    std::size_t found = 0;
    while (first != nullptr) {
      Task* const task = std::exchange(first, first->next);
      stream_ended(*task);
      ++found;
    }
    return found;
  }
  return any ? std::optional<std::size_t>(0) : std::nullopt;
}

// A group was found done: what that says of the link, if it had been waiting for it.
void Lane::note_rate(const Group& group, Nanoseconds now) {
  const auto direction = static_cast<std::size_t>(group.direction);
  const Nanoseconds began = std::max(mailbox_->ended[direction], group.launched);
  mailbox_->ended[direction] = now;
  if (group.bytes < kFewest || now <= began) return;
  auto& rate = mailbox_->rate[direction];
  const double seen =
      static_cast<double>(group.bytes) / static_cast<double>((now - began).count());
  rate = std::clamp((rate + seen) / 2, 0.1, 1000.0);
}

}  // namespace headrace::cuda
