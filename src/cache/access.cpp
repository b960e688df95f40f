// A block from the lookup to the end of its copy.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "cache/core.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/waiting/backoff.h"
#include "core/waiting/patience.h"

namespace headrace {
namespace {

// How long a waiting thread sleeps before it looks whether a backend wants to be polled: doubling
// from the first to the second. With a poller in the Mover the end of the copy wakes it at once; in
// a Mover without one (MoverOptions::poller) this thread does the polling.
constexpr Nanoseconds kFirstSleep = std::chrono::microseconds{50};
constexpr Nanoseconds kLongestSleep = std::chrono::milliseconds{10};

Range range_of(const Extent& extent) {
  return {extent.object->id(), extent.offset, extent.length.value};
}

}  // namespace

PrefetchPlan* CacheCore::plan_named(const AccessOptions& options) {
  return options.plan == nullptr ? nullptr : options.plan->plan_.get();
}

void CacheCore::access(std::span<const Extent> extents, std::span<Block> blocks,
                       const AccessOptions& options) {
  if (const Status ours = origin_.check(kTheCache); !ours) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (blocks[i].cache_ == nullptr) refuse(extents[i], blocks[i], ours.error());
    }
    return;
  }
  std::vector<std::size_t> missing;
  {
    DeferredActions deferred;
    const MutexLock lock(mutex_);
    if (hits_open_) readers_.join();
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (blocks[i].cache_ != nullptr) continue;
      if (!serve(extents[i], options, blocks[i], deferred)) missing.push_back(i);
    }
  }
  for (const std::size_t i : missing) miss(extents[i], blocks[i], options);
  go_on_with_plans(true);
}

// A block that stands for the source.
void CacheCore::refuse(const Extent& extent, Block& block, Error why) {
  block.cache_ = this;
  block.extent_ = extent;
  block.refused_ = std::make_unique<Error>(std::move(why));
}

// False: a copy has to be started.
bool CacheCore::serve(const Extent& extent, const AccessOptions& options, Block& block,
                      DeferredActions& deferred) {
  block.cache_ = this;
  block.extent_ = extent;
  if (!extent.valid()) {
    refuse(
        extent, block,
        {ErrorCode::invalid, "the extent does not lie inside its object; check offset and length"});
    return true;
  }
  if (extent.length.value == 0) return true;
  CacheEntry* const entry = find(range_of(extent));
  if (entry != nullptr) hit(*entry, extent, options, block, deferred);
  return entry != nullptr;
}

void CacheCore::miss(const Extent& extent, Block& block, const AccessOptions& options) {
  const Result<std::uint16_t> node = destination(extent, options.initiator);
  CacheEntry* made = nullptr;  // from the first time with the lock to its start
  bool late = false;           // another thread's slab has not come in all its time
  for (;;) {
    std::optional<Growth> wanted;
    CacheEntry* started = nullptr;
    std::uint32_t growths = 0;
    {
      DeferredActions deferred;
      const MutexLock lock(mutex_);
      growths = growths_.load();
      if (CacheEntry* const entry = find(range_of(extent))) {  // somebody was faster
        if (made != nullptr) entries_.give(*made);
        hit(*entry, extent, options, block, deferred);
        return;
      }
      const SpaceRequest request{
          .node = node.value_or(0), .extent = extent, .priority = options.priority};
      if (made == nullptr) made = &entries_.take();
      Space space = node ? make_space(*made, request, wanted, deferred) : Space::none;
      if (space == Space::growing && late) space = Space::none;
      if (space == Space::found || space == Space::none) {
        ++counts_.misses;
        emit(CacheEvent::Kind::miss, extent, false);
        use_planned(range_of(extent), plan_named(options));
      }
      if (space == Space::none) {
        ++counts_.refusals;
        block.refused_ = std::make_unique<Error>(node ? no_space(request) : node.error());
        entries_.give(*made);
        return;
      }
      if (space == Space::found) {
        started = &start(*made, request, deferred);
        started->used = 1;
        pin(*started);
        block.entry_ = started;
      }
    }
    if (started != nullptr) {
      submit(*started);
      return;
    }
    if (wanted) {
      grow(*wanted);
    } else {
      late = !await_growth(growths);
    }
  }
}

// The shortest ready copy that covers the range; else the shortest in flight.
CacheEntry* CacheCore::find(const Range& range) const {
  CacheEntry* best = nullptr;
  bool best_ready = false;
  index_.covering(range, [&](CacheEntry& entry) {
    const bool ready = entry.now() == BlockState::ready;
    if (best == nullptr || (ready && !best_ready) ||
        (ready == best_ready && entry.length < best->length)) {
      best = &entry;
      best_ready = ready;
    }
    return !(ready && entry.length == range.length);  // nothing is better
  });
  return best;
}

void CacheCore::hit(CacheEntry& entry, const Extent& extent, const AccessOptions& options,
                    Block& block, DeferredActions& deferred) {
  const bool ready = entry.now() == BlockState::ready;
  if (!ready) promote(*entry.fill, options.priority, deferred);
  ++(ready ? counts_.hits : counts_.inflight_hits);
  if (entry.by_prefetch && !entry.used) {
    ++counts_.first_uses;
    if (!ready) ++counts_.late;
  } else {
    // The first use of a prefetched block is what a miss is without a plan: no reason to keep it.
    nodes_[entry.node].order->touch(entry);
  }
  entry.used = 1;
  emit(ready ? CacheEvent::Kind::hit : CacheEvent::Kind::inflight_hit, extent, entry.by_prefetch);
  pin(entry);
  block.entry_ = &entry;
  use_planned(range_of(extent), plan_named(options));
  if (ready) open(entry);
}

// Somebody has come for what was fetched ahead: the copy is as urgent now as if they had started
// it.
void CacheCore::promote(Fill& fill, Priority priority, DeferredActions& deferred) {
  if (priority >= fill.priority) return;
  fill.priority = priority;
  deferred.promote.emplace_back(fill.transfer,
                                priority);  // an empty one before submit() is through
}

void CacheCore::pin(CacheEntry& entry) {
  ++counts_.pins;
  if (entry.pins++ == 0) counts_.pinned_bytes += entry.length;
}

void CacheCore::unpin(CacheEntry& entry, DeferredActions& deferred) {
  --counts_.pins;
  if (--entry.pins > 0) return;
  if (entry.data != nullptr) counts_.pinned_bytes -= entry.length;
  go_on();
  Node& node = nodes_[entry.node];
  const bool gone = entry.detached;
  if (gone) abandon(entry, deferred);
  fit_budget_by(node, gone ? nullptr : &entry, deferred);
}

// Puts a new block into the index before its copy is submitted: whoever comes from now on finds it.
// Where too many overlap each other (RangeIndex::kMostInCell) one of them goes, or else nobody
// finds the new one.
CacheEntry& CacheCore::start(CacheEntry& entry, const SpaceRequest& request,
                             DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  const Frames::Slab& slab = node.frames.slab_of(entry);
  entry.object = request.extent.object;
  entry.id = request.extent.object->id();
  entry.offset = request.extent.offset;
  entry.node = request.node;
  entry.by_prefetch = request.by_prefetch;
  entry.fill = new Fill;
  entry.fill->to = {slab.owner.get(), static_cast<std::uint64_t>(entry.data - slab.begin),
                    request.extent.length};
  entry.fill->object = entry.id;
  entry.fill->started = mover_.clock().now();
  entry.fill->priority = request.priority;
  fills_.push_front(*entry.fill);
  if (!hits_open_) entry.word.fetch_or(CacheEntry::kCounted);
  notice(entry);
  entry.detached = !may_enter_index(entry.range(), deferred);
  if (!entry.detached) {
    index_.insert(entry);
    node.order->insert(entry);
  }
  ++running_;
  if (request.by_prefetch) ++counts_.prefetched;
  emit(CacheEvent::Kind::fill_started, request.extent, request.by_prefetch);
  return entry;
}

bool CacheCore::may_enter_index(const Range& range, DeferredActions& deferred) {
  CacheEntry* const other = index_.crowded(range);
  if (other == nullptr) return true;
  if (!droppable(*other, false)) return false;
  count_pins({&other, 1});
  if (!droppable(*other, false)) return false;
  drop(*other, CacheEvent::Kind::evicted, deferred);
  return true;
}

void CacheCore::submit(CacheEntry& entry) {
  // Until complete() has run, the entry and its Fill stay.
  Fill& fill = *entry.fill;
  Priority asked = Priority::demand;
  {
    const MutexLock lock(mutex_);
    asked = fill.priority;
  }
  const Transfer transfer =
      mover_.copy(fill.to, entry.extent(),
                  {.priority = asked, .hint = CopyHint::automatic, .route = options_.route});
  Priority wanted = asked;
  bool unwanted = false;
  {
    const MutexLock lock(mutex_);
    fill.transfer = transfer;
    wanted = fill.priority;
    unwanted = fill.cancelled;
  }
  if (wanted != asked) transfer.promote(wanted);
  if (unwanted) transfer.cancel();
  transfer.on_done([this, &entry](const Result<MoveStats>& outcome) { complete(entry, outcome); });
}

// Runs in whatever thread ended the copy, also inside submit().
void CacheCore::complete(CacheEntry& entry, const Result<MoveStats>& outcome) {
  Waiting& waiting = mover_.waiting();
  const std::atomic<std::uint32_t>& word = entry.word;
  bool awaited = false;
  bool due = false;
  bool watched = false;
  {
    DeferredActions deferred;
    const MutexLock lock(mutex_);
    auto fill = std::unique_ptr<Fill>(std::exchange(entry.fill, nullptr));
    fills_.remove(*fill);
    if (outcome) {
      const Nanoseconds took = mover_.clock().now() - fill->started;
      copy_latency_.record(static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0)));
      latency_ = latency_.count() == 0 ? took : (latency_ * 7 + took) / 8;
      if (!entry.detached) emit(CacheEvent::Kind::ready, entry.extent(), entry.by_prefetch);
      deferred.fills.push_back(std::move(fill));
    } else {
      deferred.fills.push_back(std::make_unique<Fill>());
      std::swap(deferred.fills.back()->transfer, fill->transfer);
      give_up(entry, std::move(fill), outcome.error());
    }
    const BlockState good = entry.detached ? BlockState::evicting : BlockState::ready;
    awaited = publish(entry, outcome ? good : BlockState::failed);
    Node& node = nodes_[entry.node];
    const bool gone = entry.detached;
    if (gone) reap(entry);
    fit_budget_by(node, gone ? nullptr : &entry, deferred);
    go_on();
    due = take_pump_due();
    watched = watchers_ > 0;
    if (!due) --running_;
  }
  if (awaited) waiting.wake_all(word);
  const std::atomic<std::uint32_t>& running = running_;
  if (due) {
    pump(false);
    const MutexLock lock(mutex_);
    watched = watchers_ > 0;
    --running_;
  }
  // The cache may be gone; a destructor that waits looks at the word again by itself in any case.
  if (watched) waiting.wake_all(running);
}

bool CacheCore::being_read(ObjectId object) const {
  for (const Fill* fill = fills_.front(); fill != nullptr; fill = fill->next) {
    if (fill->object == object) return true;
  }
  return false;
}

// The block leaves the index, so that the next access tries again; those who hold it can still ask
// for the reason.
void CacheCore::give_up(CacheEntry& entry, std::unique_ptr<Fill> fill, const Error& error) {
  if (!fill->cancelled) {
    ++counts_.failures;
    emit(CacheEvent::Kind::failed, entry.extent(), entry.by_prefetch);
  }
  if (!entry.detached) {
    index_.remove(entry);
    nodes_[entry.node].order->remove(entry);
    // Not tried again by the plan: what fails now is likely to fail at once again.
    if (entry.planned > 0) unplan(entry, PlanItem::State::over);
    entry.detached = 1;
  }
  if (entry.pins > 0) counts_.pinned_bytes -= entry.length;
  give_frame(entry);
  fill->error = error;
  entry.fill = fill.release();
}

// True: somebody has to be woken. The value changes before anybody is woken, and a word that is
// waited on never goes back to what it was: nobody can miss the end and sleep on.
bool CacheCore::publish(CacheEntry& entry, BlockState state) {
  const std::uint32_t kept = entry.word.load() & (CacheEntry::kCounted | CacheEntry::kNoticed);
  return (entry.word.exchange(static_cast<std::uint32_t>(state) | kept) & CacheEntry::kAwaited) !=
         0;
}

BlockState CacheCore::wait(CacheEntry& entry, Nanoseconds timeout, Nanoseconds& waited) {
  if (entry.now() != BlockState::filling && waited == Nanoseconds{0}) return entry.now();
  if (growth_due_) pump(true);
  const Nanoseconds begin = mover_.clock().now();
  sleep(entry, timeout);
  waited += std::max(mover_.clock().now() - begin, Nanoseconds{1});
  const BlockState state = entry.now();
  if (state != BlockState::filling) {
    wait_time_.record(static_cast<std::uint64_t>(std::exchange(waited, Nanoseconds{0}).count()));
  }
  return state;
}

void CacheCore::sleep(CacheEntry& entry, Nanoseconds timeout) {
  Patience patience(mover_.clock(), mover_.waiting(), timeout);
  Backoff naps(kFirstSleep, kLongestSleep);
  for (;;) {
    mover_.poll();
    std::uint32_t seen = entry.word.load();
    if (entry.now() != BlockState::filling || patience.over()) return;
    if ((seen & CacheEntry::kAwaited) == 0) {
      if (!entry.word.compare_exchange_strong(seen, seen | CacheEntry::kAwaited)) continue;
      seen |= CacheEntry::kAwaited;
    }
    patience.sleep(entry.word, seen, naps.next());
  }
}

Result<std::uint16_t> CacheCore::destination(const Extent& extent,
                                             std::optional<NodeId> initiator) const noexcept {
  if (!initiator) initiator = calling_node();
  const Machine& machine = mover_.machine();
  HEADRACE_TRY(Placement placement, options_.placement(machine, {.source = extent.object->node(),
                                                                 .bytes = extent.length,
                                                                 .initiator = initiator}));
  if (placement.kind) {
    HEADRACE_TRY(placement, resolve(machine, placement, initiator));
  }
  for (const NodeWeight& weight : placement.nodes) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].id == weight.node) return static_cast<std::uint16_t>(i);
    }
  }
  return fail(ErrorCode::absent,
              "no budget for the nodes of the placement; give them one in "
              "CacheOptions::budgets, or another placement policy");
}

std::optional<NodeId> CacheCore::calling_node() const {
  const int cpu = sched_getcpu();
  if (cpu < 0 || static_cast<std::size_t>(cpu) >= node_of_cpu_.size()) return std::nullopt;
  return node_of_cpu_[static_cast<std::size_t>(cpu)];
}

}  // namespace headrace
