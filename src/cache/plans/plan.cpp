// SPDX-License-Identifier: Apache-2.0
#include "cache/plans/plan.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace headrace {

void Pace::record(Nanoseconds now, std::uint64_t bytes, Nanoseconds step) {
  const Nanoseconds passed = last_ ? std::max(now - *last_, Nanoseconds{0}) : Nanoseconds{0};
  if (begun_) {
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
  begun_ = begun_ || passed > Nanoseconds{0};
  last_ = now;
}

std::optional<BytesPerSecond> Pace::rate() const {
  if (seconds_ <= 0) return std::nullopt;
  return BytesPerSecond{bytes_ / seconds_};
}

PlanItem& PlanItems::add() {
  if (chunks_.size() == end_ / kChunk - begin_ / kChunk) {
    chunks_.push_back(std::make_unique<PlanItem[]>(kChunk));
  }
  PlanItem& item = (*this)[end_];
  item.number = end_++;
  return item;
}

void PlanItems::forget_before(std::size_t number) {
  for (std::size_t at = begin_ / kChunk; at < number / kChunk; ++at) chunks_.pop_front();
  begin_ = number;
}

// Makes the items of a new plan: their nodes, and which of them need not be fetched.
void PrefetchPlan::add(std::span<const Extent> extents, const Destinations& destinations) {
  std::uint64_t position = 0;
  const Extent* asked = nullptr;  // policies are pure: equal requests have equal answers
  Result<Destination> node = Destination{};
  for (const Extent& extent : extents) {
    PlanItem& item = items.add();
    item.plan = this;
    if (!extent.valid()) {
      item.state = PlanItem::State::over;  // an access will report the error
      ++progress.invalid;
      continue;
    }
    item.object = extent.object;
    item.bytes = {extent.object->id(), extent.offset, extent.length.value};
    item.position = position;
    position += extent.length.value;
    if (extent.length.value == 0) {
      item.state = PlanItem::State::over;
      ++progress.started;
      ++progress.used;
      continue;
    }
    if (asked == nullptr || asked->length != extent.length ||
        asked->object->node() != extent.object->node()) {
      node = destinations.first(extent, options.initiator);
      asked = &extent;
    }
    if (node) item.node = node->node;
    if (!node) item.state = PlanItem::State::over;
  }
}

void PrefetchPlan::build(std::span<const Extent> extents, const Destinations& destinations) {
  add(extents, destinations);
  std::vector<PlanItem*> order;
  for (std::size_t i = 0; i < items.end(); ++i) {
    if (items[i].state == PlanItem::State::pending) order.push_back(&items[i]);
  }
  std::ranges::sort(order, {}, [](PlanItem* item) { return std::pair(item->bytes, item->number); });
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

void PrefetchPlan::begin_steps(Steps all, std::uint16_t node) {
  steps = std::move(all);
  steps_node_ = node;
  if (steps.done()) return;
  bounds_ = steps.bounds();
  objects_.emplace_back(bounds_.object, 0);
}

void PrefetchPlan::make_item() {
  index.make_room();
  PlanItem& item = items.add();
  const Extent extent = steps.next();
  item.plan = this;
  item.object = extent.object;
  item.bytes = range_of(extent);
  item.position = steps.position();
  item.node = steps_node_;
  steps.go_to(steps.number() + 1);
  if (index.crowded(item.bytes) != nullptr) {
    item.state = PlanItem::State::over;
    return;
  }
  index.insert(item);
  item.indexed = true;
  ++objects_.front().second;
  ++left_;
}

void PrefetchPlan::make_items(std::uint64_t window, std::size_t& effort) {
  while (!steps.done() && effort > 0 && items.end() - oldest < kMade &&
         steps.position() <= std::max(furthest, begin) + window) {
    make_item();
    --effort;
  }
}

bool PrefetchPlan::reach(const Range& range, std::uint64_t window) {
  const auto number = steps.find(range);
  if (!number) return true;
  const std::uint64_t position = steps.position_of(*number);
  const std::uint64_t length = steps.next().length.value;
  // An item may be inside the range, too. Then use_in() asks.
  const bool first = steps.number() == *number;
  if (!first) {
    if (!named && !is_consumers(position, length, window)) return index.overlaps(range);
    begin = position;
    skipped = true;
    furthest = std::max(furthest, position);
    steps.go_to(*number);
  }
  std::size_t effort = kSlice;
  do {
    make_item();
  } while (--effort > 0 && !steps.done() && range.contains(range_of(steps.next())));
  return true;
}

bool PrefetchPlan::concerns(const Range& range) const {
  if (objects_.size() == 1 && !bounds_.overlaps(range)) return false;
  return index.overlaps(range) || steps.overlap(range);
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
  const auto step = first == nullptr ? steps.find_inside(range) : std::nullopt;
  if (first == nullptr && !step) return std::nullopt;
  const std::uint64_t position = step ? steps.position_of(*step) : first->position;
  // Blocks of paused consumers go first.
  constexpr Nanoseconds kPaused = std::chrono::hours{1};
  const auto rate = pace.rate();
  const double bytes = static_cast<double>(position - std::min(position, furthest));
  const double time = std::min(bytes / (rate ? rate->value : 1e9), seconds(kPaused));
  return is_stalled(now) ? kPaused : Nanoseconds{static_cast<std::int64_t>(time * 1e9)};
}

std::span<PlanItem* const> PrefetchPlan::concerned(const Range& range) {
  std::vector<PlanItem*>& found = concerned_;
  found.clear();
  const auto uses = [&](const PlanItem& item) {
    return item.bytes.contains(range) || range.contains(item.bytes);
  };
  if (objects_.size() == 1 && !bounds_.overlaps(range)) return found;
  if (index.cells_of(range) <= kSlice) {
    index.visit_overlapping(range, [&](PlanItem& item) {
      if (uses(item)) found.push_back(&item);
      return true;
    });
    std::ranges::sort(found, {}, &PlanItem::number);
    return found;
  }
  const std::size_t end = std::min(items.end(), oldest + kSlice);
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
  if (!item.indexed) return;
  item.indexed = false;
  index.remove(item);
  PlanItem* later = item.repeat;
  while (later != nullptr && later->state == PlanItem::State::over) later = later->repeat;
  if (later == nullptr) return;
  later->indexed = true;
  index.insert(*later);
}

PlanItem* PrefetchPlan::first_pending(std::size_t& effort) {
  next = std::max(next, items.begin());
  for (; next < items.end() && effort > 0; ++next, --effort) {
    if (items[next].state == PlanItem::State::pending) return &items[next];
  }
  return nullptr;
}

bool PrefetchPlan::holds(const PlanItem& item, std::uint64_t run, std::uint64_t most) {
  if (ahead == 0 || ahead + run <= most) return false;
  held = item.number;
  held_run = run;
  starts_at = most - std::min(run, most);
  return true;
}

std::vector<ObjectId> PrefetchPlan::reading() const {
  std::vector<ObjectId> found;
  for (const auto& [object, left] : objects_) {
    if (left > 0 || !steps.done()) found.push_back(object);
  }
  return found;
}

bool PrefetchPlan::is_stalled(Nanoseconds now) const {
  constexpr Nanoseconds kLeast = std::chrono::seconds{1};
  const auto rate = pace.rate();
  const double usual = rate ? static_cast<double>(ahead) / rate->value : 0;
  return ahead > 0 && now - touched > kLeast && seconds(now - touched) > usual;
}

bool PrefetchPlan::is_consumers(std::uint64_t position, std::uint64_t length,
                                std::uint64_t window) {
  if (position <= furthest + window) {
    far_ = 0;
    return true;
  }
  const bool follows = position >= far_end_ && position <= far_end_ + window;
  far_ = follows ? far_ + 1 : 1;
  far_end_ = position + length;
  if (far_ < kJump) return false;
  far_ = 0;
  begin = position;  // the consumer has used or skipped the items before
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
