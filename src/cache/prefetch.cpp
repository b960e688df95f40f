// Plans: what is fetched ahead, when, and for how long it is protected.
#include <algorithm>
#include <utility>

#include "cache/core.h"
#include "core/check.h"

namespace headrace {
namespace {

// Items of a new plan listed with one lock taken: some 0.1 ms.
constexpr std::size_t kBatch = 1024;

}  // namespace

Prefetch CacheCore::prefetch(std::span<const Extent> extents, const PrefetchOptions& options) {
  auto plan = std::make_shared<PrefetchPlan>();
  plan->options = options;
  plan->progress.planned = extents.size();
  if (!origin_.here()) {
    plan->progress.cancelled = true;
    Prefetch ended;
    ended.plan_ = std::move(plan);
    return ended;
  }
  plan->items.resize(extents.size());
  std::uint64_t position = 0;
  const Extent* asked = nullptr;  // policies are pure: equal requests have equal answers
  Result<std::uint16_t> node = std::uint16_t{0};
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    PlanItem& item = plan->items[i];
    item.plan = plan.get();
    if (!extent.valid()) {
      item.state = PlanItem::State::over;  // an access will say what is wrong
      continue;
    }
    item.object = extent.object;
    item.bytes = {extent.object->id(), extent.offset, extent.length.value};
    item.position = position;
    position += extent.length.value;
    if (extent.length.value == 0) {
      item.state = PlanItem::State::over;
      ++plan->progress.started;
      ++plan->progress.used;
      continue;
    }
    if (asked == nullptr || asked->length != extent.length ||
        asked->object->node() != extent.object->node()) {
      node = destination(extent, options.initiator);
      asked = &extent;
    }
    if (node) item.node = *node;
    if (!node) item.state = PlanItem::State::over;
  }
  enlist(plan);
  pump(true);
  Prefetch handle;
  handle.plan_ = std::move(plan);
  return handle;
}

// In batches, so that a long plan holds up nobody. Until the last one no access and no pump looks
// at the items.
void CacheCore::enlist(const std::shared_ptr<PrefetchPlan>& plan) {
  plan->link_repeats();
  const std::span<PlanItem> items(plan->items);
  for (std::size_t at = 0; at < items.size();) {
    const MutexLock lock(mutex_);
    // Blocks of 4 KiB are the most that one usually finds in an item.
    for (std::uint64_t work = 0; work < kBatch && at < items.size(); ++at) {
      PlanItem& item = items[at];
      work += 1 + (item.bytes.length >> 14);
      if (!item.indexed) continue;
      planned_.insert(item);
      for (CacheEntry* entry : index_.overlapping(item.bytes)) {
        entry->word.fetch_or(CacheEntry::kNoticed);
      }
    }
  }
  const MutexLock lock(mutex_);
  plan->core = this;
  plans_.push_back(plan);
}

// An item that is over leaves the index to the next one with the same bytes.
void CacheCore::unindex(PlanItem& item) {
  if (!std::exchange(item.indexed, false)) return;
  planned_.remove(item);
  PlanItem* next = item.repeat;
  while (next != nullptr && next->state == PlanItem::State::over) next = next->repeat;
  if (next == nullptr) return;
  next->indexed = true;
  planned_.insert(*next);
}

// Whoever lets a block go from here on says so, until go_on().
void CacheCore::stall() {
  if (std::exchange(stalled_, true)) return;
  readers_.ask_all(true);
}

void CacheCore::go_on() {
  if (!std::exchange(stalled_, false)) return;
  readers_.ask_all(false);
  pump_due_ = true;
}

// Starts whatever plans may start now. One thread at a time: a copy may complete inside submit(),
// and its completion comes here again; it only leaves word. A thread of the user may allocate slabs
// (may_grow); one that completes a copy must not be held up and leaves that to the next access.
void CacheCore::pump(bool may_grow) {
  {
    const MutexLock lock(mutex_);
    if (plans_.empty()) {
      growth_due_ = false;
      return;
    }
    if (pumping_) {
      pump_again_ = true;
      return;
    }
    pumping_ = true;
  }
  for (;;) {
    std::optional<Growth> wanted;
    CacheEntry* entry = nullptr;
    {
      DeferredActions deferred;
      const MutexLock lock(mutex_);
      if (may_grow) growth_due_ = false;
      entry = start_next(may_grow, wanted, deferred);
      if (entry == nullptr && !wanted && !std::exchange(pump_again_, false)) {
        pumping_ = false;
        return;
      }
    }
    if (wanted) grow(*wanted);
    if (entry != nullptr) submit(*entry);
  }
}

// The next block of the plan whose turn it is; null: none can be started now.
CacheEntry* CacheCore::start_next(bool may_grow, std::optional<Growth>& wanted,
                                  DeferredActions& deferred) {
  const std::size_t plans = plans_.size();
  const std::size_t first = turn_;
  bool kept = false;
  for (Node& node : nodes_) node.kept_free = false;
  for (std::size_t i = 0; i < plans; ++i) {
    const std::size_t turn = (first + i) % plans;
    PrefetchPlan& plan = *plans_[turn];
    while (PlanItem* const item = plan.first_pending()) {
      if (CacheEntry* const entry = start_item(*item, may_grow, wanted, deferred)) {
        if (!kept) turn_ = turn + 1;
        return entry;
      }
      if (wanted) return nullptr;
      if (item->state != PlanItem::State::pending) continue;
      // No space in the plan or on the node.
      if (!kept && nodes_[item->node].kept_free) {
        kept = true;
        turn_ = turn;
      }
      break;
    }
  }
  return nullptr;
}

std::uint64_t CacheCore::window_of(const PlanItem& item) const {
  return std::min(item.plan->options.window.value, nodes_[item.node].budget / 2);
}

CacheEntry* CacheCore::start_item(PlanItem& item, bool may_grow, std::optional<Growth>& wanted,
                                  DeferredActions& deferred) {
  PrefetchPlan& plan = *item.plan;
  Node& node = nodes_[item.node];
  const std::uint64_t length = item.bytes.length;
  if (length > node.budget) {
    let_go(item, PlanItem::State::over);
    return nullptr;
  }
  const std::uint64_t most = plan.limit(item, latency_, window_of(item));
  if (plan.ahead > 0 && plan.ahead + length > most) return nullptr;
  if (node.kept_free) return nullptr;
  if (CacheEntry* const found = find(item.bytes)) {
    adopt(item, *found);
    return nullptr;
  }
  if (node.planned > 0 && node.planned + length > node.budget / 2) {
    // A plan with nothing in flight would starve if others took every byte that is used up.
    if (plan.ahead == 0) node.kept_free = true;
    return nullptr;
  }
  CacheEntry& made = entries_.take();
  const SpaceRequest request{.node = item.node, .extent = item.extent(), .by_prefetch = true};
  const Space space = make_space(made, request, wanted, deferred);
  if (space != Space::found) entries_.give(made);
  switch (space) {
    case Space::growth:
      if (!may_grow) {
        node.growing -= wanted->bytes;
        wanted.reset();
        growth_due_ = true;
      }
      return nullptr;
    case Space::growing:
    case Space::none: stall(); return nullptr;
    case Space::found: break;
  }
  CacheEntry& entry = start(made, request);
  adopt(item, entry);
  return &entry;
}

void CacheCore::adopt(PlanItem& item, CacheEntry& entry) {
  item.state = PlanItem::State::started;
  item.entry = &entry;
  PrefetchPlan& plan = *item.plan;
  plan.ahead += item.bytes.length;
  plan.started_end =
      std::max(plan.started_end, static_cast<std::size_t>(&item - plan.items.data()) + 1);
  ++plan.progress.started;
  if (entry.planned++ == 0) nodes_[entry.node].planned += entry.length;
}

// From pending or started to `state`: back to pending when its block was dropped, or over.
void CacheCore::let_go(PlanItem& item, PlanItem::State state) {
  PrefetchPlan& plan = *item.plan;
  if (item.state == PlanItem::State::started) {
    CacheEntry& entry = *std::exchange(item.entry, nullptr);
    if (--entry.planned == 0) nodes_[entry.node].planned -= entry.length;
    plan.ahead -= item.bytes.length;
  }
  if (state == PlanItem::State::pending) {
    --plan.progress.started;
    plan.next = std::min(plan.next, static_cast<std::size_t>(&item - plan.items.data()));
  } else {
    unindex(item);
  }
  item.state = state;
  pump_due_ = true;
}

// An access to `range` by the consumer of `named`, or by whoever where that is null: in each plan
// concerned the first item that covers it is used, and all that lie inside (each once, if it was
// planned several times).
void CacheCore::use_planned(const Range& range, PrefetchPlan* named) {
  if (planned_.empty()) return;
  if (named != nullptr && named->core == this) named->named = true;
  std::vector<PlanItem*> items = planned_.overlapping(range);
  std::erase_if(items, [&](const PlanItem* item) {
    return item->plan->core == nullptr ||
           (named != nullptr ? item->plan != named : item->plan->named) ||
           !(item->bytes.contains(range) || range.contains(item->bytes));
  });
  std::ranges::sort(items, std::less<>{});  // items of one plan lie in one array, in its order
  const PrefetchPlan* covered = nullptr;
  const PrefetchPlan* asked = nullptr;  // once for each plan: a wide access is one, too
  bool consumers = true;
  for (PlanItem* item : items) {
    PrefetchPlan& plan = *item->plan;
    if (item->state == PlanItem::State::over) continue;  // passed over by the use of another
    if (named == nullptr && std::exchange(asked, &plan) != &plan) {
      consumers = plan.is_consumers(*item, window_of(*item));
    }
    if (!consumers) continue;
    if (item->bytes.contains(range) && std::exchange(covered, &plan) == &plan) continue;
    if (item->state == PlanItem::State::pending) ++plan.progress.started;
    let_go(*item, PlanItem::State::over);
    ++plan.progress.used;
    plan.pace.record(mover_.clock().now(), item->bytes.length);
    plan.furthest = std::max(plan.furthest, item->end_position());
    pass_over(plan);
  }
}

// Uses need not come in order, but an item that lies more than the window behind the furthest use
// is not waited for any longer: it loses its protection, or is never started.
void CacheCore::pass_over(PrefetchPlan& plan) {
  for (; plan.oldest < plan.items.size(); ++plan.oldest) {
    PlanItem& item = plan.items[plan.oldest];
    if (item.state == PlanItem::State::over) continue;
    const bool behind = item.end_position() + window_of(item) < plan.furthest;
    if (!behind && item.position >= plan.begin) return;
    let_go(item, PlanItem::State::over);
  }
}

// The block of these items is gone.
void CacheCore::unplan(CacheEntry& entry, PlanItem::State state) {
  for (PlanItem* item : planned_.overlapping(entry.range())) {
    for (; item != nullptr; item = item->repeat) {
      if (item->entry == &entry) let_go(*item, state);
    }
  }
  DCHECK(entry.planned == 0);
}

void CacheCore::end_plan(PrefetchPlan& plan) {
  for (std::size_t i = plan.oldest; i < plan.items.size(); ++i) {
    if (plan.items[i].state != PlanItem::State::over) {
      let_go(plan.items[i], PlanItem::State::over);
    }
  }
  plan.progress.cancelled = true;
  plan.core = nullptr;
  const auto at = std::ranges::find(plans_, &plan, &std::shared_ptr<PrefetchPlan>::get);
  if (static_cast<std::size_t>(at - plans_.begin()) < turn_) --turn_;  // the same plan's turn
  plans_.erase(at);
}

void CacheCore::end_plans() {
  while (!plans_.empty()) {
    const std::shared_ptr<PrefetchPlan> plan = plans_.back();
    end_plan(*plan);
  }
}

void CacheCore::cancel(PrefetchPlan& plan) {
  if (!origin_.here()) return;
  {
    const MutexLock lock(mutex_);
    if (plan.core == nullptr) return;  // ended by clear() meanwhile
    end_plan(plan);
  }
  if (take_pump_due()) pump(true);  // others may go on in its space
}

Prefetch::Progress CacheCore::progress(const PrefetchPlan& plan) const {
  if (!origin_.here()) return {.cancelled = true};
  const MutexLock lock(mutex_);
  return plan.progress;
}

}  // namespace headrace
