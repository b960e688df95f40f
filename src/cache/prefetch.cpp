// SPDX-License-Identifier: Apache-2.0
// Plans: what is fetched ahead, when, and for how long it is protected.
#include <algorithm>
#include <utility>

#include "cache/core.h"
#include "core/check.h"

namespace headrace {
namespace {

// A run of planned neighbours is fetched as one block of at most this many bytes: what makes a read
// of an SSD as fast as a long one (docs/design/storage.md). At most one of so many of the budget,
// since who holds a part of it pins all of it.
constexpr std::uint64_t kMerged = 1 << 20;
constexpr std::uint64_t kMergedShare = 64;
constexpr std::size_t kMergedItems = 256;

// Plans that lack space look for those whose consumers pause this often.
constexpr Nanoseconds kStallLook = std::chrono::milliseconds{10};

}  // namespace

std::shared_ptr<PrefetchPlan> CacheCore::prefetch(std::span<const Extent> extents,
                                                  const PrefetchOptions& options) {
  auto plan = std::make_shared<PrefetchPlan>();
  plan->options = options;
  plan->named = options.named;
  plan->progress.planned = extents.size();
  if (!origin_.here()) {
    plan->progress.cancelled = true;
    return plan;
  }
  fill(*plan, extents);
  plan->build();
  enlist(plan);
  pump(true, kAllStarts);
  return plan;
}

// The items of a new plan: where they go, and what need not be fetched.
void CacheCore::fill(PrefetchPlan& plan, std::span<const Extent> extents) const {
  plan.items.resize(extents.size());
  std::uint64_t position = 0;
  const Extent* asked = nullptr;  // policies are pure: equal requests have equal answers
  Result<Destination> node = Destination{};
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    PlanItem& item = plan.items[i];
    item.plan = &plan;
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
      ++plan.progress.started;
      ++plan.progress.used;
      continue;
    }
    if (asked == nullptr || asked->length != extent.length ||
        asked->object->node() != extent.object->node()) {
      node = destination(extent, plan.options.initiator);
      asked = &extent;
    }
    if (node) item.node = node->node;
    if (!node) item.state = PlanItem::State::over;
  }
}

// Accesses to what is there already are to be told to the plan; in slices. Until the last one no
// access and no pump looks at it, but blocks made meanwhile are told (notice()).
void CacheCore::enlist(const std::shared_ptr<PrefetchPlan>& plan) {
  {
    const MutexLock lock(mutex_);
    plans_.push_back(plan);
    plan->core = this;
    plan->touched = mover_.clock().now();
  }
  const std::span<PlanItem> items(plan->items);
  for (std::size_t at = 0; at < items.size();) {
    const MutexLock lock(mutex_);
    // Blocks of 4 KiB are the most that one usually finds in an item.
    for (std::uint64_t work = 0; work < PrefetchPlan::kSlice && at < items.size(); ++at) {
      const PlanItem& item = items[at];
      work += 1 + (item.bytes.length >> 14);
      if (!item.indexed) continue;
      index_.visit_overlapping(item.bytes, [](CacheEntry& entry) {
        entry.word.fetch_or(CacheEntry::kNoticed);
        return true;
      });
    }
  }
  const MutexLock lock(mutex_);
  if (plan->ended) return;  // by clear(), meanwhile
  plan->listed = true;
  set_idle(*plan, plan->left() == 0);
}

// Whether a plan has to be told of accesses to `range`.
bool CacheCore::are_concerned(const Range& range) const {
  return std::ranges::any_of(plans_, [&](const auto& plan) { return plan->concerns(range); });
}

// Whoever lets a block go from here on says so, until go_on(). A release during the search that
// found no space said nothing, so plans and waiting accesses search once more. True: now.
bool CacheCore::stall() {
  if (std::exchange(stalled_, true)) return false;
  readers_.ask_all(true);
  pump_again_ = true;
  space_changes_.fetch_add(1);
  return true;
}

void CacheCore::go_on(DeferredActions& deferred) {
  ++let_go_;
  if (!std::exchange(stalled_, false)) return;
  readers_.ask_all(false);
  pump_due_ = true;
  space_changes_.fetch_add(1);
  deferred.wake = true;
}

// Starts copies that plans may start now, at most `most` blocks, so that no access is held up for
// long. The ends of these copies start more; so do later uses, wait() and progress().
// One thread at a time: a copy may complete inside submit(), and then complete() only leaves word.
// may_grow: the thread may allocate slabs. Threads that complete copies must not.
// If memory runs out, the next caller tries again.
void CacheCore::pump(bool may_grow, std::size_t most) noexcept {
  if (!begin_pump()) return;
  try {
    start_most(may_grow, most);
  } catch (const std::bad_alloc&) {
    const MutexLock lock(mutex_);
    pumping_ = false;
    pump_due_ = true;
  }
}

bool CacheCore::begin_pump() {
  const MutexLock lock(mutex_);
  if (plans_.empty()) {
    if (growth_due_.load()) growth_due_ = false;
    return false;
  }
  if (pumping_) {
    pump_again_ = true;
    return false;
  }
  pumping_ = true;
  return true;
}

void CacheCore::start_most(bool may_grow, std::size_t most) {
  Spare spare(*this);
  Started all(*this, Priority::prefetch);
  for (;;) {
    std::optional<Growth> wanted;
    CacheEntry* entry = nullptr;
    {
      DeferredActions deferred(*this);
      const MutexLock lock(mutex_);
      // Not stored again: hits read the line.
      if (may_grow && growth_due_.load()) growth_due_ = false;
      if (most > 0) entry = start_next(may_grow, spare, wanted, deferred);
      // What is submitted after pumping_ is false may end there, and its end begin the next pump:
      // on this stack.
      if (entry == nullptr && !wanted && all.empty() &&
          (most == 0 || !std::exchange(pump_again_, false))) {
        pumping_ = false;
        if (most == 0) {
          pump_again_ = false;
          pump_due_ = true;
        }
        return;
      }
    }
    if (entry != nullptr) {
      all.add(*entry);
      --most;
    } else if (wanted) {
      grow(*wanted);  // before a callback of what is submitted waits for this slab
    } else {
      all.submit();
    }
  }
}

// The next block of the plan whose turn it is; null: none can be started now. Of a plan with much
// to skip a slice, and pump_again_ is set.
CacheEntry* CacheCore::start_next(bool may_grow, Spare& spare, std::optional<Growth>& wanted,
                                  DeferredActions& deferred) {
  const std::size_t plans = plans_.size();
  const std::size_t first = turn_;
  bool kept = false;
  for (Node& node : nodes_) node.reserved = 0;
  for (std::size_t i = 0; i < plans; ++i) {
    const std::size_t turn = (first + i) % plans;
    PrefetchPlan& plan = *plans_[turn];
    if (!plan.listed || plan.idle) continue;
    std::size_t effort = PrefetchPlan::kSlice;
    pass_over(plan, effort, deferred);
    while (PlanItem* const item = plan.first_pending(effort)) {
      if (CacheEntry* const entry = start_item(*item, may_grow, spare, wanted, deferred)) {
        if (!kept) turn_ = turn + 1;
        return entry;
      }
      if (wanted) {
        turn_ = turn;  // it is first when the slab is there
        return nullptr;
      }
      if (item->state != PlanItem::State::pending) {
        --effort;
        continue;
      }
      // No space in the plan or on the node.
      if (!kept && nodes_[item->node].reserved > 0) {
        kept = true;
        turn_ = turn;
      }
      break;
    }
    if (effort == 0) pump_again_ = true;
  }
  return nullptr;
}

std::uint64_t CacheCore::window_of(const PlanItem& item) const {
  return std::min(item.plan->options.window.value, nodes_[item.node].budget / 2);
}

std::uint64_t CacheCore::share_of(const Node& node) const {
  return node.budget / 2 / std::max<std::size_t>(plans_.size() - idle_, 1);
}

// Whether the plan of `item` may have `bytes` more protected on its node: its share, or else one
// item, beside what all others have; more than that only as long as all together have no more than
// half of the budget (docs/design/cache/plans.md).
bool CacheCore::grants(const PlanItem& item, std::uint64_t bytes, DeferredActions& deferred) {
  const PrefetchPlan& plan = *item.plan;
  Node& node = nodes_[item.node];
  const std::uint64_t half = node.budget / 2;
  const bool own = plan.ahead == 0 || plan.ahead + bytes <= share_of(node);
  if (!own && node.reserved > 0) return false;
  const auto fits = [&] {
    return node.planned + node.reserved + bytes <= (own ? node.budget : half);
  };
  if (fits()) return true;
  take_back(item, bytes, deferred);
  if (fits()) return true;
  reserve(item, bytes);
  return false;
}

// What a plan needs that has nothing is kept for it until there is space; others go on beside that.
void CacheCore::reserve(const PlanItem& item, std::uint64_t bytes) {
  Node& node = nodes_[item.node];
  if (item.plan->ahead == 0 && node.reserved == 0) node.reserved = bytes;
}

void CacheCore::set_idle(PrefetchPlan& plan, bool idle) {
  if (std::exchange(plan.idle, idle) == idle) return;
  idle_ = idle ? idle_ + 1 : idle_ - 1;
}

// From plans whose consumers pause, at most a slice: what they have fetched for their furthest uses
// is no longer protected, until all plans have no more than half of the budget.
void CacheCore::take_back(const PlanItem& item, std::uint64_t bytes, DeferredActions& deferred) {
  const Nanoseconds now = mover_.clock().now();
  if (idle_ == 0 && now < stall_look_) return;
  stall_look_ = now + kStallLook;
  Node& node = nodes_[item.node];
  std::size_t looks = PrefetchPlan::kSlice;
  for (const auto& plan : plans_) {
    if (plan.get() == item.plan || plan->ahead == 0) continue;
    if (plan->is_stalled(now)) set_idle(*plan, true);
    if (!plan->idle) continue;
    for (std::size_t i = plan->furthest_started(); i-- > plan->oldest && looks > 0; --looks) {
      if (node.planned + bytes <= node.budget / 2) return;
      PlanItem& far = plan->items[i];
      if (far.state == PlanItem::State::started && far.node == item.node) {
        let_go_unused(far, PlanItem::State::pending, deferred);
      }
    }
  }
}

CacheEntry* CacheCore::start_item(PlanItem& item, bool may_grow, Spare& spare,
                                  std::optional<Growth>& wanted, DeferredActions& deferred) {
  PrefetchPlan& plan = *item.plan;
  Node& node = nodes_[item.node];
  const std::uint64_t length = item.bytes.length;
  if (length > node.budget) {
    let_go(item, PlanItem::State::over);
    return nullptr;
  }
  const std::uint64_t most = plan.limit(item, latency_ * shards_, window_of(item));
  if (plan.ahead > 0 && plan.ahead + length > most) return nullptr;
  CacheEntry* const found = find(item.bytes);
  std::uint64_t run = found != nullptr ? length : run_from(item, most);
  if (plan.ahead > 0 && plan.ahead + run > most) return nullptr;
  if (!grants(item, found != nullptr && found->planned > 0 ? 0 : run, deferred)) return nullptr;
  if (found != nullptr && found->detached != 0) return nullptr;  // taken back from another plan
  if (found == nullptr) run = not_there_of(item, run);
  plan.touched = mover_.clock().now();
  if (found != nullptr) {
    adopt(item, *found);
    return nullptr;
  }
  // A run lies in another cell of the index than its first item. Where that cell is full, the item
  // is fetched alone.
  Range bytes = item.bytes;
  bytes.length = run;
  if (run > length && index_.crowded(bytes) != nullptr) bytes.length = run = length;
  if (!may_enter_index(bytes, deferred)) {
    let_go(item, PlanItem::State::over);
    return nullptr;
  }
  const SpaceRequest request{.node = item.node,
                             .extent = {item.object, item.bytes.offset, Bytes{run}},
                             .by_prefetch = true};
  switch (make_space(spare.get(), request, wanted, deferred)) {
    case Space::growth:
      if (!may_grow) {
        node.growing -= wanted->bytes;
        wanted.reset();
        if (!growth_due_.load()) growth_due_ = true;
      }
      return nullptr;
    case Space::growing:
    case Space::none:
      stall();
      reserve(item, run);
      return nullptr;
    case Space::found: break;
  }
  CacheEntry& entry = spare.use();
  start(entry, request, deferred);
  PlanItem* next = &item;
  for (std::uint64_t at = 0; at < run; at += (next++)->bytes.length) adopt(*next, entry);
  return &entry;
}

// The bytes of the pending items from here on that lie one behind the other, as far as they may be
// fetched as one block; the plan waits until there is space for all of them.
std::uint64_t CacheCore::run_from(const PlanItem& item, std::uint64_t most) {
  const PrefetchPlan& plan = *item.plan;
  const Node& node = nodes_[item.node];
  const std::uint64_t limit =
      std::min({kMerged, node.budget / kMergedShare, most / 4, share_of(node) / 4});
  Range run = item.bytes;
  if (item.alone) return run.length;
  const std::size_t first = plan.index_of(item);
  const std::size_t end = std::min(plan.items.size(), first + kMergedItems);
  for (std::size_t i = first + 1; i < end; ++i) {
    const PlanItem& next = plan.items[i];
    if (run.length + next.bytes.length > limit || next.state != PlanItem::State::pending ||
        next.node != item.node || next.bytes.object != run.object ||
        next.bytes.offset != run.end() || next.alone) {
      break;
    }
    run.length += next.bytes.length;
  }
  return index_.crowded(run) == nullptr ? run.length : item.bytes.length;
}

// The part of a run before the first item that is there already.
std::uint64_t CacheCore::not_there_of(const PlanItem& item, std::uint64_t run) {
  std::uint64_t bytes = item.bytes.length;
  for (const PlanItem* next = &item + 1; bytes < run; ++next) {
    if (find(next->bytes) != nullptr) break;
    bytes += next->bytes.length;
  }
  return bytes;
}

void CacheCore::adopt(PlanItem& item, CacheEntry& entry) {
  DCHECK(entry.detached == 0);
  item.state = PlanItem::State::started;
  item.entry = &entry;
  PrefetchPlan& plan = *item.plan;
  plan.ahead += item.bytes.length;
  plan.started_end = std::max(plan.started_end, plan.index_of(item) + 1);
  ++plan.progress.started;
  if (entry.planned++ > 0) return;
  Node& node = nodes_[entry.node];
  node.planned += entry.length;
  node.order->remove(entry);
}

// From pending or started to `state`: back to pending when its block was dropped, or over.
void CacheCore::let_go(PlanItem& item, PlanItem::State state) {
  PrefetchPlan& plan = *item.plan;
  if (item.state == PlanItem::State::started) {
    CacheEntry& entry = *std::exchange(item.entry, nullptr);
    if (--entry.planned == 0) {
      nodes_[entry.node].planned -= entry.length;
      using Use = EvictionBlock::Use;
      const bool again = entry.by_prefetch == 0 || entry.visited;
      const Use unused = state == PlanItem::State::over ? Use::used_up : Use::fresh;
      if (entry.detached == 0) enter_order(entry, again ? Use::again : unused);
    }
    plan.ahead -= item.bytes.length;
    ++let_go_;
  }
  item.state = state;
  if (state == PlanItem::State::pending) {
    --plan.progress.started;
    plan.next = std::min(plan.next, plan.index_of(item));
  } else {
    plan.remove(item);
    if (plan.left() == 0) set_idle(plan, true);
  }
  pump_due_ = true;
}

// The same; a block that nobody wants then, and whose copy no engine has begun, is dropped.
void CacheCore::let_go_unused(PlanItem& item, PlanItem::State state, DeferredActions& deferred) {
  CacheEntry* const entry = item.state == PlanItem::State::started ? item.entry : nullptr;
  let_go(item, state);
  if (entry != nullptr && is_unwanted(*entry)) {
    drop(*entry, CacheEvent::Kind::evicted, deferred);
  }
}

// An access to `range` by the consumer of the plan it names, or by whoever where it names none: in
// each plan concerned the first item that covers it is used, and all that lie inside (each once, if
// it was planned several times).
void CacheCore::use_planned(const Range& range, const AccessOptions& options,
                            DeferredActions& deferred) {
  if (options.plan != nullptr) {
    const auto& parts = options.plan->plans_;
    PrefetchPlan* const named = shard_ < parts.size() ? parts[shard_].get() : nullptr;
    if (named == nullptr || named->core != this || !named->listed) return;
    named->named = true;
    return use(*named, range, deferred);
  }
  for (const auto& plan : plans_) {
    if (plan->listed && !plan->named) use(*plan, range, deferred);
  }
}

void CacheCore::use(PrefetchPlan& plan, const Range& range, DeferredActions& deferred) {
  bool covered = false;
  bool any = false;
  for (PlanItem* item : plan.concerned(range)) {
    if (item->state == PlanItem::State::over) continue;  // passed over by the use of another
    // Asked once: a wide access is one, too.
    if (!any && !plan.named && !plan.is_consumers(*item, window_of(*item))) return;
    any = true;
    if (item->bytes.contains(range) && std::exchange(covered, true)) continue;
    if (item->state == PlanItem::State::pending) ++plan.progress.started;
    set_idle(plan, false);
    let_go(*item, PlanItem::State::over);
    ++plan.progress.used;
    plan.touched = mover_.clock().now();
    plan.pace.record(plan.touched, item->bytes.length, plan.options.lead / Pace::kSteps);
    plan.furthest = std::max(plan.furthest, item->end_position());
  }
  std::size_t effort = PrefetchPlan::kSlice;
  if (any) pass_over(plan, effort, deferred);
}

// Uses need not come in order, but an item that lies more than the window behind the furthest use
// is not waited for any longer: it loses its protection, or is never started.
void CacheCore::pass_over(PrefetchPlan& plan, std::size_t& effort, DeferredActions& deferred) {
  for (; plan.oldest < plan.items.size() && effort > 0; ++plan.oldest, --effort) {
    PlanItem& item = plan.items[plan.oldest];
    if (item.state == PlanItem::State::over) continue;
    const bool behind = item.end_position() + window_of(item) < plan.furthest;
    if (!behind && item.position >= plan.begin) return;
    let_go_unused(item, PlanItem::State::over, deferred);
  }
}

// The block of these items is gone. What failed as a part of a run is tried alone.
void CacheCore::unplan(CacheEntry& entry, PlanItem::State state) {
  for (const auto& plan : plans_) {
    if (entry.planned == 0) return;
    plan->index.visit_overlapping(entry.range(), [&](PlanItem& first) {
      mutex_.assert_held();
      // Those with the same bytes are started one after the other.
      PlanItem* item = &first;
      while (item != nullptr && plan->index_of(*item) < plan->started_end) {
        if (item->entry == &entry) {
          const bool part = item->bytes.length < entry.length && !item->alone;
          item->alone = state == PlanItem::State::over;
          let_go(*item, part ? PlanItem::State::pending : state);
        }
        item = item->repeat;
      }
      return entry.planned > 0;
    });
  }
  DCHECK(entry.planned == 0);
}

// Whether only plans that have ended wanted the block, and no engine has begun its copy.
bool CacheCore::is_unwanted(const CacheEntry& entry) {
  return entry.planned == 0 && !entry.used && !entry.detached &&
         entry.now() == BlockState::filling && entry.fill->transfer &&
         !entry.fill->transfer->begun();
}

// In slices; it starts nothing any more. Drops its blocks whose copy no engine has begun. Requires:
// nobody else ends it.
void CacheCore::end_plan(const std::shared_ptr<PrefetchPlan>& plan) {
  for (std::size_t i = 0;;) {
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    i = std::max(i, plan->oldest);
    const std::size_t end = std::min(plan->started_end, i + PrefetchPlan::kSlice);
    for (; i < end; ++i) {
      PlanItem& item = plan->items[i];
      if (item.state != PlanItem::State::started) continue;
      let_go_unused(item, PlanItem::State::over, deferred);
    }
    if (i < plan->started_end) continue;
    const auto at = std::ranges::find(plans_, plan);
    if (static_cast<std::size_t>(at - plans_.begin()) < turn_) --turn_;  // the same plan's turn
    plans_.erase(at);
    set_idle(*plan, false);  // no longer counted
    plan->progress.cancelled = true;
    plan->core = nullptr;
    return;
  }
}

// Whether the caller is to end it; nobody uses it from now on.
bool CacheCore::give_up(PrefetchPlan& plan) {
  plan.listed = false;
  return !std::exchange(plan.ended, true);
}

void CacheCore::end_plans() {
  for (;;) {
    std::shared_ptr<PrefetchPlan> plan;
    {
      const MutexLock lock(mutex_);
      const auto at = std::ranges::find(plans_, false, [](const auto& one) { return one->ended; });
      if (at == plans_.end()) return;
      plan = *at;
      give_up(*plan);
    }
    end_plan(plan);
  }
}

void CacheCore::cancel(const std::shared_ptr<PrefetchPlan>& plan) {
  if (!origin_.here()) return;
  {
    const MutexLock lock(mutex_);
    if (!give_up(*plan)) return;  // by clear(), meanwhile
  }
  end_plan(plan);
  if (take_pump_due()) pump(true, kAllStarts);  // others may go on in its space
}

Prefetch::Progress CacheCore::progress(const PrefetchPlan& plan) {
  if (!origin_.here()) return {.cancelled = true};
  if (take_pump_due() || growth_due_) pump(!mover_.in_callback());
  const MutexLock lock(mutex_);
  return plan.progress;
}

}  // namespace headrace
