// SPDX-License-Identifier: Apache-2.0
#include "cache/prefetch.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "cache/blocks.h"
#include "cache/structures/chunks.h"
#include "core/check.h"

namespace headrace {
namespace {

// A run of planned neighbours is fetched as one block of at most this many bytes. A read of this
// length gets the full speed of an SSD (docs/design/storage.md). A run is at most this share of the
// budget, since a Block of a part of it pins all of it.
constexpr std::uint64_t kMerged = 1 << 20;
constexpr std::uint64_t kMergedShare = 64;
constexpr std::size_t kMergedItems = 256;

// How often plans that lack space look for paused consumers.
constexpr Nanoseconds kStallLook = std::chrono::milliseconds{10};

// Whether only plans that have ended wanted the block, and no engine has begun its copy.
bool is_unwanted(const CacheEntry& entry) {
  return entry.planned == 0 && !entry.used && !entry.detached &&
         entry.now() == BlockState::filling && entry.fill->transfer &&
         !entry.fill->transfer->begun();
}

}  // namespace

void Prefetcher::add(std::shared_ptr<PrefetchPlan> plan, CacheCore& core) {
  plans_.push_back(std::move(plan));
  plans_.back()->core = &core;
  plans_.back()->touched = shard_.mover.clock().now();
}

void Prefetcher::list(PrefetchPlan& plan) {
  if (plan.ended) return;  // by clear(), meanwhile
  plan.listed = true;
  set_idle(plan, plan.left() == 0);
}

bool Prefetcher::begin_pump() {
  if (plans_.empty()) {
    if (shard_.signals.growth_due.load()) shard_.signals.growth_due = false;
    return false;
  }
  if (pumping_) {
    pump_again_ = true;
    return false;
  }
  pumping_ = true;
  return true;
}

bool Prefetcher::end_pump(std::size_t left) {
  if (left > 0 && std::exchange(pump_again_, false)) return false;
  pumping_ = false;
  if (left == 0) {
    pump_again_ = false;
    shard_.signals.pump_due = true;
  }
  return true;
}

void Prefetcher::give_up_pump() {
  pumping_ = false;
  shard_.signals.pump_due = true;
}

bool Prefetcher::are_concerned(const Range& range) const {
  return std::ranges::any_of(plans_, [&](const auto& plan) { return plan->concerns(range); });
}

CacheEntry* Prefetcher::start_next(bool may_grow, CacheEntry*& spare,
                                   std::optional<Growth>& wanted) {
  const std::size_t plans = plans_.size();
  const std::size_t first = turn_;
  bool kept = false;
  for (Space::Node& node : shard_.space.nodes()) node.reserved = 0;
  for (std::size_t i = 0; i < plans; ++i) {
    const std::size_t turn = (first + i) % plans;
    PrefetchPlan& plan = *plans_[turn];
    if (!plan.listed || plan.idle) continue;
    std::size_t effort = PrefetchPlan::kSlice;
    pass_over(plan, effort);
    plan.make_items(window_of(plan, plan.steps_node()), effort);
    while (PlanItem* const item = plan.first_pending(effort)) {
      if (CacheEntry* const entry = start_item(*item, may_grow, spare, wanted)) {
        if (!kept) turn_ = turn + 1;
        return entry;
      }
      if (wanted) {
        turn_ = turn;  // the plan is first when the slab is there
        return nullptr;
      }
      if (item->state != PlanItem::State::pending) {
        --effort;
        continue;
      }
      // No space in the plan or on the node.
      if (!kept && shard_.space.node(item->node).reserved > 0) {
        kept = true;
        turn_ = turn;
      }
      break;
    }
    if (effort == 0) pump_again_ = true;
  }
  return nullptr;
}

std::uint64_t Prefetcher::window_of(const PrefetchPlan& plan, std::uint16_t node) const {
  return std::min(plan.options.window.value, shard_.space.node(node).budget / 2);
}

std::uint64_t Prefetcher::share_of(const Space::Node& node) const {
  return node.budget / 2 / std::max<std::size_t>(plans_.size() - idle_, 1);
}

// Whether the plan of `item` may have `bytes` more protected on its node
// (docs/design/cache/plans.md). It may have its share, or else one item, besides the bytes of all
// other plans. It may have more while all plans together have at most half of the budget.
bool Prefetcher::grants(const PlanItem& item, std::uint64_t bytes) {
  const PrefetchPlan& plan = *item.plan;
  Space::Node& node = shard_.space.node(item.node);
  const std::uint64_t half = node.budget / 2;
  const bool own = plan.ahead == 0 || plan.ahead + plan.around + bytes <= share_of(node);
  if (!own && node.reserved > 0) return false;
  const auto fits = [&] {
    return node.planned + node.reserved + bytes <= (own ? node.budget : half);
  };
  if (fits()) return true;
  take_back(item, bytes);
  if (fits()) return true;
  reserve(item, bytes);
  return false;
}

// Keeps space for a plan that has none, until there is enough. Other plans use the rest.
void Prefetcher::reserve(const PlanItem& item, std::uint64_t bytes) {
  Space::Node& node = shard_.space.node(item.node);
  if (item.plan->ahead == 0 && node.reserved == 0) node.reserved = bytes;
}

void Prefetcher::set_idle(PrefetchPlan& plan, bool idle) {
  if (std::exchange(plan.idle, idle) == idle) return;
  idle_ = idle ? idle_ + 1 : idle_ - 1;
}

// Unprotects blocks of plans whose consumers pause, the furthest uses first, until all plans
// together have at most half of the budget. At most a slice.
void Prefetcher::take_back(const PlanItem& item, std::uint64_t bytes) {
  const Nanoseconds now = shard_.mover.clock().now();
  if (idle_ == 0 && now < stall_look_) return;
  stall_look_ = now + kStallLook;
  Space::Node& node = shard_.space.node(item.node);
  std::size_t looks = PrefetchPlan::kSlice;
  for (const auto& plan : plans_) {
    if (plan.get() == item.plan || plan->ahead == 0) continue;
    if (plan->is_stalled(now)) set_idle(*plan, true);
    if (!plan->idle) continue;
    for (std::size_t i = plan->furthest_started(); i-- > plan->oldest && looks > 0; --looks) {
      if (node.planned + bytes <= node.budget / 2) return;
      PlanItem& far = plan->items[i];
      if (far.state == PlanItem::State::started && far.node == item.node) {
        let_go_unused(far, PlanItem::State::pending);
      }
    }
  }
}

CacheEntry* Prefetcher::start_item(PlanItem& item, bool may_grow, CacheEntry*& spare,
                                   std::optional<Growth>& wanted) {
  PrefetchPlan& plan = *item.plan;
  Space::Node& node = shard_.space.node(item.node);
  const std::uint64_t length = item.bytes.length;
  if (length > node.most(tenant_of(item))) {
    let_go(item, PlanItem::State::over);
    return nullptr;
  }
  const std::uint64_t most =
      plan.limit(item, shard_.blocks.latency * shard_.shards, window_of(plan, item.node));
  plan.starts_at = PrefetchPlan::kNow;
  // The run of a held item is not looked for again at each use.
  const bool known = plan.held == item.number && plan.held_run <= most / 4;
  if (plan.holds(item, known ? plan.held_run : length, most)) return nullptr;
  CacheEntry* const found = shard_.hits.find(item.bytes);
  const std::uint64_t run = found != nullptr ? length : run_from(item, most);
  if (plan.holds(item, run, most)) return nullptr;
  const std::uint64_t more = found == nullptr ? block_of(item, run).length : found->length.load();
  if (!grants(item, found != nullptr && found->planned > 0 ? 0 : more)) return nullptr;
  if (found != nullptr && found->detached != 0) return nullptr;  // take_back() dropped it
  plan.touched = shard_.mover.clock().now();
  if (found != nullptr && found->planned == CacheEntry::kMostPlanned) {
    let_go(item, PlanItem::State::over);
    return nullptr;
  }
  if (found != nullptr) {
    adopt(item, *found);
    shard_.chain.promote(*found);
    return nullptr;
  }
  const Range bytes = block_of(item, not_there_of(item, run));
  // An access will wait for a dirty block that overlaps the item.
  if (shard_.options.writable && !shard_.blocks.may_start(bytes)) {
    let_go(item, PlanItem::State::over);
    return nullptr;
  }
  if (!shard_.blocks.may_enter_index(bytes)) {
    let_go(item, PlanItem::State::over);
    return nullptr;
  }
  const SpaceRequest request = request_for(item, bytes);
  spare = &shard_.blocks.take(spare);
  switch (shard_.space.make(*spare, request, wanted)) {
    case Space::Outcome::growth:
      if (!may_grow) {
        shard_.space.cancel(*wanted);
        wanted.reset();
        if (!shard_.signals.growth_due.load()) shard_.signals.growth_due = true;
      }
      return nullptr;
    case Space::Outcome::growing:
    case Space::Outcome::none:
      shard_.space.stall();
      reserve(item, bytes.length);
      return nullptr;
    case Space::Outcome::found: break;
  }
  CacheEntry& entry = *std::exchange(spare, nullptr);
  shard_.blocks.start(entry, request);
  adopt_all(item, entry, most);
  return &entry;
}

std::uint32_t Prefetcher::tenant_of(const PlanItem& item) const {
  return number_of(shard_.accounts.owners.of(item.object, item.plan->options.tenant));
}

SpaceRequest Prefetcher::request_for(const PlanItem& item, const Range& bytes) const {
  const std::uint32_t tenant = tenant_of(item);
  return {.node = item.node,
          .tenant = tenant,
          .extent = {item.object, bytes.offset, Bytes{bytes.length}},
          .by_prefetch = true,
          .priority = priority_for(shard_.options.tenants, tenant, Priority::prefetch)};
}

// The item, and those behind it that lie in its block, up to the limit. The last one, which is used
// last, protects the rest of the block.
void Prefetcher::adopt_all(PlanItem& item, CacheEntry& entry, std::uint64_t most) {
  adopt(item, entry);
  PrefetchPlan& plan = *item.plan;
  const std::size_t end = std::min(plan.items.end(), item.number + PrefetchPlan::kSlice);
  for (std::size_t i = item.number + 1; i < end; ++i) {
    PlanItem& next = plan.items[i];
    if (next.state != PlanItem::State::pending || next.node != item.node ||
        !entry.range().contains(next.bytes) || plan.ahead + next.bytes.length > most) {
      break;
    }
    adopt(next, entry);
    std::uint32_t& around = plan.items[i - 1].around;
    const auto own = std::min<std::uint64_t>(around, next.bytes.length);
    next.around = std::exchange(around, 0) - static_cast<std::uint32_t>(own);
    plan.around -= own;
  }
}

// The block of a run: with whole chunks, unless they do not fit. It lies in another cell of the
// index than the item. If that cell is full, the item is fetched alone.
Range Prefetcher::block_of(const PlanItem& item, std::uint64_t run) const {
  const Range range = range_of(whole_chunks({item.object, item.bytes.offset, Bytes{run}}));
  const bool fits = range.length <= shard_.space.node(item.node).budget;
  return fits && shard_.hits.index.crowded(range) == nullptr ? range : item.bytes;
}

// Bytes of the adjacent pending items, from `item` on, that may be fetched as one block. The plan
// waits until there is space for all of them.
std::uint64_t Prefetcher::run_from(const PlanItem& item, std::uint64_t most) const {
  const PrefetchPlan& plan = *item.plan;
  const Space::Node& node = shard_.space.node(item.node);
  const std::uint64_t limit =
      std::min({kMerged, node.most(tenant_of(item)) / kMergedShare, most / 4, share_of(node) / 4});
  Range run = item.bytes;
  // One block would be dropped as a whole when a part of it is written.
  if (item.alone || shard_.options.writable) return run.length;
  const std::size_t first = item.number;
  const std::size_t end = std::min(plan.items.end(), first + kMergedItems);
  for (std::size_t i = first + 1; i < end; ++i) {
    const PlanItem& next = plan.items[i];
    if (run.length + next.bytes.length > limit || next.state != PlanItem::State::pending ||
        next.node != item.node || next.bytes.object != run.object ||
        next.bytes.offset != run.end() || next.alone) {
      break;
    }
    run.length += next.bytes.length;
  }
  return shard_.hits.index.crowded(run) == nullptr ? run.length : item.bytes.length;
}

// The part of a run before its first later item that is cached already.
std::uint64_t Prefetcher::not_there_of(const PlanItem& item, std::uint64_t run) const {
  std::uint64_t bytes = item.bytes.length;
  for (std::size_t number = item.number + 1; bytes < run; ++number) {
    const Range& next = item.plan->items[number].bytes;
    if (shard_.hits.find(next) != nullptr) break;
    bytes += next.length;
  }
  return bytes;
}

void Prefetcher::adopt(PlanItem& item, CacheEntry& entry) {
  DCHECK(entry.detached == 0);
  item.state = PlanItem::State::started;
  item.entry = &entry;
  PrefetchPlan& plan = *item.plan;
  plan.ahead += item.bytes.length;
  plan.started_end = std::max(plan.started_end, item.number + 1);
  ++plan.progress.started;
  if (entry.planned == 0) shard_.candidates.leave(entry, false);
  if (entry.planned++ > 0) return;
  constexpr std::uint64_t kMost = ~std::uint32_t{0};
  item.around = static_cast<std::uint32_t>(std::min(entry.length - item.bytes.length, kMost));
  plan.around += item.around;
  shard_.space.node(entry.node).planned += entry.length;
}

// Moves a pending or started item to `state`: pending again if its block was dropped, or over.
void Prefetcher::let_go(PlanItem& item, PlanItem::State state) {
  PrefetchPlan& plan = *item.plan;
  CacheEntry* const entry = std::exchange(item.entry, nullptr);
  item.state = state;
  if (entry == nullptr || state == PlanItem::State::pending) plan.starts_at = PrefetchPlan::kNow;
  if (state == PlanItem::State::pending) {
    --plan.progress.started;
    plan.next = std::min(plan.next, item.number);
  } else {
    plan.remove(item);
    if (plan.left() == 0) set_idle(plan, true);
  }
  if (entry != nullptr) {
    plan.ahead -= item.bytes.length;
    plan.around -= std::exchange(item.around, 0);
    unprotect(*entry, state);
  }
  // Other plans may wait for its share.
  if (plan.ahead <= plan.starts_at || plans_.size() > 1) shard_.signals.pump_due = true;
}

// An item has let go of the block. The items that are left decide on its next use.
void Prefetcher::unprotect(CacheEntry& entry, PlanItem::State state) {
  if (--entry.planned == 0) {
    shard_.space.node(entry.node).planned -= entry.length;
    using Use = Candidates::Use;
    const bool again = entry.by_prefetch == 0 || entry.again != 0 || entry.visited;
    const Use unused = state == PlanItem::State::over ? Use::used_up : Use::fresh;
    if (entry.detached == 0) shard_.candidates.enter(entry, again ? Use::again : unused);
  }
  shard_.space.let_go();
}

// Like let_go(). Also drops a block that nobody wants any more if no engine has begun its copy.
void Prefetcher::let_go_unused(PlanItem& item, PlanItem::State state) {
  CacheEntry* const entry = item.state == PlanItem::State::started ? item.entry : nullptr;
  let_go(item, state);
  if (entry != nullptr && is_unwanted(*entry)) {
    shard_.blocks.drop(*entry, CacheEvent::Kind::evicted);
  }
}

bool Prefetcher::use(const Range& range, const AccessOptions& options) {
  if (options.plan != nullptr) {
    const auto& parts = options.plan->plans_;
    PrefetchPlan* const named = shard_.number < parts.size() ? parts[shard_.number].get() : nullptr;
    if (named == nullptr || !named->listed) return false;
    named->named = true;
    return use_in(*named, range);
  }
  bool any = false;
  for (const auto& plan : plans_) {
    if (plan->listed && !plan->named && use_in(*plan, range)) any = true;
  }
  return any;
}

std::optional<Nanoseconds> Prefetcher::next_use(const Range& range, bool* paced) const {
  std::optional<Nanoseconds> next;
  const Nanoseconds now = shard_.mover.clock().now();
  for (const auto& plan : plans_) {
    if (plan->ended) continue;
    const auto ahead = plan->next_use(range, now);
    if (!ahead || (next && *ahead >= *next)) continue;
    next = ahead;
    if (paced != nullptr) *paced = plan->is_paced(now);
  }
  return next;
}

void Prefetcher::notice(CacheEntry& entry) {
  entry.word.fetch_or(CacheEntry::kNoticed);
  if (entry.planned > 0 || entry.detached != 0 || entry.visited) return;
  if (next_use(entry.range())) shard_.candidates.sort(entry);
}

bool Prefetcher::is_consumers(PrefetchPlan& plan, const PlanItem& item) const {
  return plan.named ||
         plan.is_consumers(item.position, item.bytes.length, window_of(plan, item.node));
}

bool Prefetcher::use_in(PrefetchPlan& plan, const Range& range) {
  bool covered = false;
  bool any = false;
  if (!plan.reach(range, window_of(plan, plan.steps_node()))) return false;
  for (PlanItem* item : plan.concerned(range)) {
    if (item->state == PlanItem::State::over) continue;  // passed over by the use of another item
    // Asked once per access, also for a wide one.
    if (!any && !is_consumers(plan, *item)) return false;
    any = true;
    if (item->bytes.contains(range) && std::exchange(covered, true)) continue;
    if (item->state == PlanItem::State::pending) ++plan.progress.started;
    set_idle(plan, false);
    let_go(*item, PlanItem::State::over);
    ++plan.progress.used;
    plan.touched = shard_.mover.clock().now();
    plan.pace.record(plan.touched, item->bytes.length, plan.options.lead / Pace::kSteps);
    plan.furthest = std::max(plan.furthest, item->end_position());
  }
  std::size_t effort = PrefetchPlan::kSlice;
  if (any) pass_over(plan, effort);
  return any;
}

// Uses may come in any order. But an item more than the window behind the furthest use is passed
// over: it loses its protection, or is never started.
void Prefetcher::pass_over(PrefetchPlan& plan, std::size_t& effort) {
  for (; plan.oldest < plan.items.end() && effort > 0; ++plan.oldest, --effort) {
    PlanItem& item = plan.items[plan.oldest];
    if (item.state == PlanItem::State::over) continue;
    const bool behind = item.end_position() + window_of(plan, item.node) < plan.furthest;
    if (!behind && item.position >= plan.begin) break;
    if (item.state == PlanItem::State::pending) plan.skipped = true;
    let_go_unused(item, PlanItem::State::over);
  }
  plan.items.forget_before(plan.oldest);
}

void Prefetcher::unplan(CacheEntry& entry, PlanItem::State state) {
  for (const auto& plan : plans_) {
    if (entry.planned == 0) return;
    plan->index.visit_overlapping(entry.range(), [&](PlanItem& first) {
      // Items with the same bytes are started one after the other.
      PlanItem* item = &first;
      while (item != nullptr && item->number < plan->started_end) {
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

bool Prefetcher::give_up(PrefetchPlan& plan) {
  plan.listed = false;
  return !std::exchange(plan.ended, true);
}

std::shared_ptr<PrefetchPlan> Prefetcher::give_up_any() {
  const auto at = std::ranges::find(plans_, false, [](const auto& one) { return one->ended; });
  if (at == plans_.end()) return nullptr;
  give_up(**at);
  return *at;
}

bool Prefetcher::end_some(const std::shared_ptr<PrefetchPlan>& plan, std::size_t& at) {
  at = std::max(at, plan->oldest);
  const std::size_t end = std::min(plan->started_end, at + PrefetchPlan::kSlice);
  for (; at < end; ++at) {
    PlanItem& item = plan->items[at];
    if (item.state != PlanItem::State::started) continue;
    let_go_unused(item, PlanItem::State::over);
  }
  if (at < plan->started_end) return false;
  const auto place = std::ranges::find(plans_, plan);
  if (static_cast<std::size_t>(place - plans_.begin()) < turn_) --turn_;  // the same plan's turn
  plans_.erase(place);
  if (plan->left() > 0 || plan->skipped) shard_.candidates.sort_again();
  set_idle(*plan, false);  // no longer counted
  plan->progress.cancelled = true;
  plan->core = nullptr;
  return true;
}

std::vector<PrefetchPlan*> Prefetcher::paused_first() const {
  std::vector<PrefetchPlan*> plans;
  for (const auto& plan : plans_) plans.push_back(plan.get());
  const Nanoseconds now = shard_.mover.clock().now();
  std::ranges::sort(plans, std::greater<>{}, [now](const PrefetchPlan* plan) {
    return std::pair(plan->is_stalled(now), plan->ahead);
  });
  return plans;
}

std::vector<ObjectId> Prefetcher::reading() const {
  std::vector<ObjectId> objects;
  for (const auto& plan : plans_) {
    const auto planned = plan->reading();
    objects.insert(objects.end(), planned.begin(), planned.end());
  }
  return objects;
}

}  // namespace headrace
