// SPDX-License-Identifier: Apache-2.0
#include "cache/plans/plan.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace headrace {

void Pace::record(Nanoseconds now, std::uint64_t bytes, Nanoseconds step) {
  if (last_) {
    const Nanoseconds passed = std::max(now - *last_, Nanoseconds{0});
    bytes_ += static_cast<double>(bytes);
    seconds_ += seconds(passed);
    in_step_ += passed;
    if (in_step_ >= step) {
      constexpr double kKeep = 1 - 1.0 / kSteps;
      bytes_ *= kKeep;
      seconds_ *= kKeep;
      in_step_ = Nanoseconds{0};
    }
  }
  last_ = now;
}

std::optional<BytesPerSecond> Pace::rate() const {
  if (seconds_ <= 0) return std::nullopt;
  return BytesPerSecond{bytes_ / seconds_};
}

void PrefetchPlan::build() {
  std::vector<PlanItem*> order;
  for (PlanItem& item : items) {
    if (item.state == PlanItem::State::pending) order.push_back(&item);
  }
  // Equal items by address, which is their order in the plan.
  std::ranges::sort(order, {}, [](PlanItem* item) { return std::pair(item->bytes, item); });
  index.reserve(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    PlanItem& item = *order[i];
    if (i > 0 && order[i - 1]->bytes == item.bytes) {
      item.state = order[i - 1]->state;
      order[i - 1]->repeat = &item;
    } else if (index.crowded(item.bytes) != nullptr) {
      item.state = PlanItem::State::over;
    } else {
      index.insert(item);
      item.indexed = true;
    }
    if (item.state == PlanItem::State::over) continue;
    if (objects_.empty()) bounds_ = item.bytes;
    if (objects_.empty() || objects_.back().first != item.bytes.object) {
      objects_.emplace_back(item.bytes.object, 0);
    }
    ++objects_.back().second;
    ++left_;
    bounds_.length = std::max(bounds_.end(), item.bytes.end()) - bounds_.offset;
  }
}

bool PrefetchPlan::concerns(const Range& range) const {
  if (objects_.size() == 1 && !bounds_.overlaps(range)) return false;
  return index.overlaps(range);
}

std::optional<Nanoseconds> PrefetchPlan::next_use(const Range& range, Nanoseconds now) const {
  constexpr int kLooks = 8;
  if (objects_.size() == 1 && !bounds_.overlaps(range)) return std::nullopt;
  const PlanItem* first = nullptr;
  int looks = 0;
  index.visit_overlapping(range, [&](const PlanItem& item) {
    if (range.contains(item.bytes) && (first == nullptr || item.position < first->position)) {
      first = &item;
    }
    return ++looks < kLooks;
  });
  if (first == nullptr) return std::nullopt;
  // Blocks of paused consumers go first.
  constexpr Nanoseconds kPaused = std::chrono::hours{1};
  const auto rate = pace.rate();
  const double bytes = static_cast<double>(first->position - std::min(first->position, furthest));
  const double time = std::min(bytes / (rate ? rate->value : 1e9), seconds(kPaused));
  return is_stalled(now) ? kPaused : Nanoseconds{static_cast<std::int64_t>(time * 1e9)};
}

std::vector<PlanItem*> PrefetchPlan::concerned(const Range& range) {
  std::vector<PlanItem*> found;
  const auto uses = [&](const PlanItem& item) {
    return item.bytes.contains(range) || range.contains(item.bytes);
  };
  if (objects_.size() == 1 && !bounds_.overlaps(range)) return found;
  if (index.cells_of(range) <= kSlice) {
    index.visit_overlapping(range, [&](PlanItem& item) {
      if (uses(item)) found.push_back(&item);
      return true;
    });
    std::ranges::sort(found, std::less<>{});  // they lie in one array, in their order
    return found;
  }
  const std::size_t end = std::min(items.size(), oldest + kSlice);
  for (std::size_t i = oldest; i < end; ++i) {
    if (items[i].indexed && uses(items[i])) found.push_back(&items[i]);
  }
  return found;
}

void PrefetchPlan::remove(PlanItem& item) {
  const auto object = std::ranges::lower_bound(objects_, item.bytes.object, {},
                                               &std::pair<ObjectId, std::size_t>::first);
  --object->second;
  --left_;
  if (!std::exchange(item.indexed, false)) return;
  index.remove(item);
  PlanItem* later = item.repeat;
  while (later != nullptr && later->state == PlanItem::State::over) later = later->repeat;
  if (later == nullptr) return;
  later->indexed = true;
  index.insert(*later);
}

PlanItem* PrefetchPlan::first_pending(std::size_t& effort) {
  for (; next < items.size() && effort > 0; ++next, --effort) {
    if (items[next].state == PlanItem::State::pending) return &items[next];
  }
  return nullptr;
}

std::vector<ObjectId> PrefetchPlan::reading() const {
  std::vector<ObjectId> found;
  for (const auto& [object, left] : objects_) {
    if (left > 0) found.push_back(object);
  }
  return found;
}

bool PrefetchPlan::is_stalled(Nanoseconds now) const {
  constexpr Nanoseconds kLeast = std::chrono::seconds{1};
  const auto rate = pace.rate();
  const double usual = rate ? static_cast<double>(ahead) / rate->value : 0;
  return ahead > 0 && now - touched > kLeast && seconds(now - touched) > usual;
}

bool PrefetchPlan::is_consumers(const PlanItem& item, std::uint64_t window) {
  if (item.position <= furthest + window) {
    far_ = 0;
    return true;
  }
  const bool follows = item.position >= far_end_ && item.position <= far_end_ + window;
  far_ = follows ? far_ + 1 : 1;
  far_end_ = item.end_position();
  if (far_ < kJump) return false;
  far_ = 0;
  begin = item.position;  // the consumer has used or skipped the items before
  return true;
}

std::size_t PrefetchPlan::furthest_started() {
  while (started_end > oldest && items[started_end - 1].state != PlanItem::State::started) {
    --started_end;
  }
  return started_end;
}

std::uint64_t PrefetchPlan::limit(const PlanItem& item, Nanoseconds latency,
                                  std::uint64_t most) const {
  const auto rate = pace.rate();
  if (!rate) return most;
  const double wanted = rate->value * seconds(std::max(options.lead, 2 * latency));
  const auto least = static_cast<double>(2 * item.bytes.length);
  return static_cast<std::uint64_t>(std::min(std::max(wanted, least), static_cast<double>(most)));
}

}  // namespace headrace
