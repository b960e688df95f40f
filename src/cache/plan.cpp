#include "cache/plan.h"

#include <algorithm>
#include <utility>

namespace headrace {

void Pace::record(Nanoseconds now, std::uint64_t bytes) {
  if (last_) {
    constexpr double kKeep = 1 - 1 / kMemory;
    bytes_ = bytes_ * kKeep + static_cast<double>(bytes);
    seconds_ = seconds_ * kKeep + seconds(std::max(now - *last_, Nanoseconds{0}));
  }
  last_ = now;
}

std::optional<BytesPerSecond> Pace::rate() const {
  if (seconds_ <= 0) return std::nullopt;
  return BytesPerSecond{bytes_ / seconds_};
}

void PrefetchPlan::link_repeats() {
  std::vector<PlanItem*> order;
  for (PlanItem& item : items) {
    if (item.state == PlanItem::State::pending) order.push_back(&item);
  }
  // Equals by address, which is their order in the plan.
  std::ranges::sort(order, {}, [](PlanItem* item) { return std::pair(item->bytes, item); });
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i]->indexed = i == 0 || order[i - 1]->bytes != order[i]->bytes;
    if (!order[i]->indexed) order[i - 1]->repeat = order[i];
  }
}

PlanItem* PrefetchPlan::first_pending() {
  while (next < items.size() && items[next].state != PlanItem::State::pending) ++next;
  return next < items.size() ? &items[next] : nullptr;
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
  begin = item.position;  // it has been there and has what lies before
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
