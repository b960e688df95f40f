#include "cache/plan.h"

#include <algorithm>

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

PlanItem* PrefetchPlan::first_pending() {
  while (next < items.size() && items[next].state != PlanItem::State::pending) ++next;
  return next < items.size() ? &items[next] : nullptr;
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
