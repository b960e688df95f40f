// SPDX-License-Identifier: Apache-2.0
// Makes, starts and ends plans.
#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "cache/core.h"

namespace headrace {

std::shared_ptr<PrefetchPlan> Pump::prefetch(std::span<const Extent> extents,
                                             const PrefetchOptions& options) {
  auto plan = std::make_shared<PrefetchPlan>();
  plan->progress.planned = extents.size();
  if (!has_tenant(state_.options, options.tenant)) {
    plan->progress.invalid = extents.size();  // an access will report the error
  } else if (state_.origin.here()) {
    plan->options = options;
    plan->build(extents, state_.destinations);
  }
  begin(plan, options);
  return plan;
}

std::shared_ptr<PrefetchPlan> Pump::prefetch(const Strided& all, Steps::FromShard from_shard,
                                             const Prefetch::Progress& progress,
                                             const PrefetchOptions& options) {
  auto plan = std::make_shared<PrefetchPlan>();
  plan->progress = progress;
  if (!has_tenant(state_.options, options.tenant)) {
    plan->progress.invalid = progress.planned;  // an access will report the error
  } else if (state_.origin.here() && all.count > 0) {
    const Extent first{all.object, all.offset, all.length};
    const auto node = state_.destinations.first(first, options.initiator);
    if (node) {
      plan->begin_steps(Steps(all, std::move(from_shard), state_.parts.shards), node->node);
    }
  }
  begin(plan, options);
  return plan;
}

void Pump::begin(const std::shared_ptr<PrefetchPlan>& plan, const PrefetchOptions& options) {
  plan->options = options;
  plan->named = options.named;
  if (!state_.origin.here()) {
    plan->progress.cancelled = true;
    return;
  }
  enlist(plan);
  pump(true, kAll);
}

// Marks the blocks that are cached already, in slices, so that the plan learns of accesses to them.
// Before the last slice is done, no access and no pump uses the plan; Blocks::start() marks new
// blocks.
void Pump::enlist(const std::shared_ptr<PrefetchPlan>& plan) {
  {
    const MutexLock lock(state_.mutex);
    state_.plans.add(plan, core_);
  }
  PlanItems& items = plan->items;
  for (std::size_t at = 0; at < items.end();) {
    const MutexLock lock(state_.mutex);
    // An item usually overlaps at most one block per 4 KiB.
    for (std::uint64_t work = 0; work < PrefetchPlan::kSlice && at < items.end(); ++at) {
      const PlanItem& item = items[at];
      work += 1 + (item.bytes.length >> 14);
      if (!item.indexed) continue;
      const auto notice = [this](CacheEntry& entry) NO_THREAD_SAFETY_ANALYSIS {
        state_.plans.notice(entry);
        return true;
      };
      state_.hits.index.visit_overlapping(item.bytes, notice);
    }
  }
  if (!plan->steps.done()) notice_steps(plan->steps);
  const MutexLock lock(state_.mutex);
  state_.plans.list(*plan);
}

void Pump::notice_steps(const Steps& steps) {
  bool again = false;
  for (RangeIndex<CacheEntry>::Cursor cursor; !cursor.ended; again = cursor.cells == 0) {
    std::array<CacheEntry*, PrefetchPlan::kSlice> found;
    const MutexLock lock(state_.mutex);
    // A short range is walked from its beginning each time.
    const auto skip = [&](const CacheEntry& entry) {
      return !steps.overlap(entry.range()) || (again && entry.has(CacheEntry::kNoticed));
    };
    const std::size_t count = state_.hits.index.next(steps.bounds(), cursor, found, skip);
    for (CacheEntry* entry : std::span(found).first(count)) state_.plans.notice(*entry);
  }
}

void Pump::pump(bool may_grow, std::size_t most) noexcept {
  start_plans(may_grow, most);
  moves_.start_due();
}

void Pump::start_plans(bool may_grow, std::size_t most) noexcept {
  {
    const MutexLock lock(state_.mutex);
    if (!state_.plans.begin_pump()) return;
  }
  try {
    start_most(may_grow, most);
  } catch (const std::bad_alloc&) {
    const MutexLock lock(state_.mutex);
    state_.plans.give_up_pump();
  }
}

void Pump::start_most(bool may_grow, std::size_t most) {
  Spare spare(state_);
  Started all;
  for (;;) {
    std::optional<Growth> wanted;
    CacheEntry* entry = nullptr;
    Priority priority = Priority::prefetch;
    {
      const Locked lock(state_);
      // Not stored again: hits read the line.
      if (may_grow && state_.signals.growth_due.load()) state_.signals.growth_due = false;
      if (most > 0) entry = state_.plans.start_next(may_grow, spare.entry, wanted);
      if (entry != nullptr) priority = entry->fill->priority;
      // A copy submitted after end_pump() might end there, and its end would begin the next
      // pump on this stack.
      if (entry == nullptr && !wanted && all.empty() && state_.plans.end_pump(most)) return;
    }
    if (entry != nullptr) {
      all.add(fills_, *entry, priority);
      --most;
    } else if (wanted) {
      slabs_.grow(*wanted);  // before a callback of what is submitted waits for this slab
    } else {
      all.submit();
    }
  }
}

void Pump::cancel(const std::shared_ptr<PrefetchPlan>& plan) {
  if (!state_.origin.here()) return;
  {
    const MutexLock lock(state_.mutex);
    if (!Prefetcher::give_up(*plan)) return;  // clear() ended it meanwhile
  }
  end(plan);
  pump_if_due(true, kAll);  // other plans may use its space
}

Prefetch::Progress Pump::progress(const PrefetchPlan& plan) {
  if (!state_.origin.here()) return {.cancelled = true};
  if (state_.signals.take_pump_due() || state_.signals.growth_due)
    pump(!state_.mover.in_callback());
  const MutexLock lock(state_.mutex);
  return plan.progress;
}

void Pump::end(const std::shared_ptr<PrefetchPlan>& plan) {
  std::size_t at = 0;
  for (bool ended = false; !ended;) {
    const Locked lock(state_);
    ended = state_.plans.end_some(plan, at);
  }
  // No other plan may wait for its blocks.
  for (bool sorted = false; !sorted;) {
    const Locked lock(state_);
    sorted = state_.candidates.sort_some(PrefetchPlan::kSlice);
  }
}

void Pump::end_all() {
  for (;;) {
    std::shared_ptr<PrefetchPlan> plan;
    {
      const MutexLock lock(state_.mutex);
      plan = state_.plans.give_up_any();
    }
    if (plan == nullptr) return;
    end(plan);
  }
}

}  // namespace headrace
