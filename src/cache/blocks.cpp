// SPDX-License-Identifier: Apache-2.0
#include "cache/blocks.h"

#include <algorithm>
#include <new>

#include "cache/structures/grow.h"
#include "core/check.h"
#include "core/fail.h"

// A static probe of user space (USDT): one nop, which bpftrace, perf and SystemTap can turn into a
// breakpoint. Nothing where <sys/sdt.h> (Debian: systemtap-sdt-dev) is not installed.
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define HEADRACE_PROBE4(name, a, b, c, d) DTRACE_PROBE4(headrace, name, a, b, c, d)
#else
#define HEADRACE_PROBE4(name, a, b, c, d) static_cast<void>(0)
#endif

namespace headrace {
namespace {

// True: a thread must be woken. The value changes before that, and a word that is waited on never
// returns to an old value. So no thread misses the end and sleeps on.
bool publish(CacheEntry& entry, BlockState state) {
  const std::uint32_t kept =
      entry.word.load() & (CacheEntry::kCounted | CacheEntry::kNoticed | CacheEntry::kOnGpu);
  return (entry.word.exchange(static_cast<std::uint32_t>(state) | kept) & CacheEntry::kAwaited) !=
         0;
}

// Where copies of sources go: not to the memories of a chain, which are the last budgets.
std::vector<NodeId> nodes_of(const CacheOptions& options) {
  std::vector<NodeId> nodes;
  for (const auto& [id, budget] : options.budgets) nodes.push_back(id);
  nodes.resize(nodes.size() - options.chain.size());
  return nodes;
}

}  // namespace

void Deferred::cancel(const Transfer& transfer) {
  any_ = true;
  if (!first_cancelled) {
    first_cancelled = transfer;
    return;
  }
  try {
    more_cancelled.push_back(transfer);
  } catch (const std::bad_alloc&) {
  }
}

void Deferred::may_free() { grow_for_one(slabs); }

// After the release the cache may be destroyed, unless some of the work needs it.
void Locked::release_and_act() {
  Deferred work = std::exchange(state_.deferred, {});
  state_.mutex.unlock();
  if (work.awaited != nullptr) state_.mover.waiting().wake_all(*work.awaited);
  for (const auto& [transfer, priority] : work.promoted) transfer.promote(priority);
  if (work.first_cancelled) work.first_cancelled->cancel();
  for (const Transfer& transfer : work.more_cancelled) transfer.cancel();
  if (!work.slabs.empty()) {
    // Returned to the kernel, which takes a while.
    const std::size_t count = work.slabs.size();
    work.slabs.clear();
    {
      const MutexLock lock(state_.mutex);
      state_.space.count_unmapped(count);
    }
    work.wake_ = true;
  }
  if (work.wake_) state_.mover.waiting().wake_all(state_.signals.space_changes);
  for (const auto& then : work.thens) then();
}

ShardState::ShardState(Mover& to_use, CacheOptions wanted, Accounts& accounts, std::size_t number,
                       std::size_t shards)
    : mover(to_use),
      options(std::move(wanted)),
      destinations(mover.machine(), options.placement, nodes_of(options)),
      parts{.mover = mover,
            .options = options,
            .accounts = accounts,
            .number = number,
            .shards = shards,
            .signals = signals,
            .hits = hits,
            .deferred = deferred,
            .space = space,
            .candidates = candidates,
            .plans = plans,
            .blocks = blocks,
            .chain = chain},
      space(parts),
      candidates(parts),
      plans(parts),
      blocks(parts),
      chain(parts) {}

CacheEntry& Blocks::take(CacheEntry* taken) {
  shard_.hits.index.make_room();  // first, since it may fail
  return taken == nullptr ? entries_.take() : *taken;
}

void Blocks::give_unused(CacheEntry& entry) {
  shard_.space.give_frame(entry);
  entries_.give(entry);
}

void Blocks::start(CacheEntry& entry, const SpaceRequest& request) {
  const Space::Node& node = shard_.space.node(request.node);
  entry.object = request.extent.object;
  entry.id = request.extent.object->id();
  entry.offset = request.extent.offset;
  entry.node = static_cast<std::uint8_t>(request.node);
  entry.by_prefetch = request.by_prefetch;
  if (node.on_gpu) entry.word.fetch_or(CacheEntry::kOnGpu);
  describe(entry);
  entry.fill->priority = request.priority;
  DCHECK(may_start(entry.range()));
  if (request.write) {
    entry.written = 1;
    entry.word.fetch_or(CacheEntry::kCounted);
  }
  fills_.push_front(*entry.fill);
  if (!shard_.hits.open() || !node.top) entry.word.fetch_or(CacheEntry::kCounted);
  // A plan that contains it learns of accesses.
  if (shard_.plans.are_concerned(entry.range())) entry.word.fetch_or(CacheEntry::kNoticed);
  if (may_enter_index(entry.range())) {
    shard_.hits.index.insert(entry);
    entry.detached = 0;
    using Use = Candidates::Use;
    const bool brief = request.by_prefetch || request.keep == Keep::shorter;
    const Use kept = request.keep == Keep::longer ? Use::again : Use::fresh;
    shard_.candidates.enter(entry, brief ? Use::used_up : kept);
  } else {
    // As for a dropped block, all its pins are counted.
    entry.word.fetch_or(CacheEntry::kCounted);
  }
  ++shard_.signals.started;
  ++shard_.signals.running;
  if (request.by_prefetch) ++counts.prefetched;
  emit(CacheEvent::Kind::fill_started, request.extent, request.by_prefetch);
  shard_.chain.make_way(request.node, request.tenant, request.extent, false);
}

void Blocks::describe(CacheEntry& entry) {
  const Frames::Slab& slab = shard_.space.node(entry.node).frames.slab_of(entry);
  entry.fill->to = {slab.owner.get(), static_cast<std::uint64_t>(entry.data - slab.begin),
                    Bytes{entry.length}};
  entry.fill->source = entry.range();
  entry.fill->entry = &entry;
}

bool Blocks::may_enter_index(const Range& range) {
  CacheEntry* const other = shard_.hits.index.crowded(range);
  if (other == nullptr) return true;
  if (!other->droppable(false)) return false;
  shard_.hits.count_pins(*other);
  if (!other->droppable(false)) return false;
  drop(*other, CacheEvent::Kind::evicted);
  return true;
}

bool Blocks::use(CacheEntry& entry, const Extent& extent, const AccessOptions& options) {
  const bool ready = entry.now() == BlockState::ready;
  if (!ready) {
    const TenantId tenant = shard_.accounts.owners.of(extent.object, options.tenant);
    promote(*entry.fill, priority_for(shard_.options.tenants, number_of(tenant), options.priority));
  }
  const bool first = entry.by_prefetch && !entry.used;
  entry.used = 1;  // else a plan that passes over its items might drop it
  const bool by_plan = shard_.plans.use(range_of(extent), options);
  ++(ready ? counts.hits : counts.inflight_hits);
  counts.first_uses += first;
  counts.late += first && !ready;
  // The first use of a planned block corresponds to a miss without a plan. An access that names a
  // plan reads a block once, in one or more pieces. Neither is a reason to keep the block.
  if (!first && !by_plan && options.plan == nullptr) {
    if (entry.planned > 0 || entry.by_next_use != 0) {
      entry.visited = true;  // enter() asks for it
    } else {
      shard_.space.node(entry.node).queue_of(entry).order->touch(entry);
    }
  }
  if (entry.by_next_use != 0) shard_.candidates.sort(entry);
  emit(ready ? CacheEvent::Kind::hit : CacheEvent::Kind::inflight_hit, extent, entry.by_prefetch);
  if (ready) open(entry);
  if (ready) shard_.chain.promote_soon(entry);
  return ready;
}

// An access needs a prefetched copy now, so the copy becomes as urgent as the access.
void Blocks::promote(Fill& fill, Priority priority) {
  if (priority >= fill.priority) return;
  // Without a transfer, Fills::remember() does it.
  if (fill.transfer) shard_.deferred.promote(*fill.transfer, priority);
  fill.priority = priority;
}

void Blocks::open(CacheEntry& entry) {
  if (CacheEntry::is_open(entry.word.load()) || !shard_.hits.open()) return;
  // Its writers, and moves, need all of its pins counted.
  if (entry.kept() || entry.write_wanted != 0 || entry.moving != 0) return;
  const Space::Node& node = shard_.space.node(entry.node);
  if (!node.top) return;  // each access moves it to the first memory
  shard_.space.spare(entry);
  if (node.frames.capacity() > node.budget || node.used > node.budget) return;
  // The first use of a prefetched block is counted under the lock.
  if (entry.by_prefetch != 0 && entry.used == 0) return;
  const bool noticed = entry.has(CacheEntry::kNoticed) &&
                       (entry.planned > 0 || shard_.plans.are_concerned(entry.range()));
  const std::uint32_t ready =
      static_cast<std::uint32_t>(BlockState::ready) | (entry.word.load() & CacheEntry::kOnGpu);
  entry.word = noticed ? ready | CacheEntry::kNoticed : ready;
}

void Blocks::unpin(CacheEntry& entry) {
  if (!shard_.hits.unpin(entry)) {
    if (entry.moving != 0 && entry.pins == 1) shard_.chain.hurry_put_off();
    return;
  }
  changed();
  shard_.candidates.unpinned(entry);
  const bool used_up = entry.by_next_use != 0 && NextUses::is_at(entry, std::nullopt);
  if (shard_.space.stalled() || used_up) shard_.space.offer(entry);
  shard_.space.released();
  const std::uint8_t node = entry.node;
  const bool gone = entry.detached;
  if (gone) abandon(entry);
  shard_.space.fit_budget_by(node, gone ? nullptr : &entry);
}

void Blocks::end_copy(CacheEntry& entry, const Error* why, Nanoseconds took) {
  Fill& fill = *entry.fill;
  fills_.remove(fill);
  if (fill.transfer) shard_.deferred.forget(*std::move(fill.transfer));
  if (!fill.thens.empty()) shard_.deferred.call(std::move(fill.thens));
  if (why == nullptr) {
    latency = latency.count() == 0 ? took : (latency * 7 + took) / 8;
    if (!entry.detached) emit(CacheEvent::Kind::ready, entry.extent(), entry.by_prefetch);
    fill.thens.clear();
    fill.transfer.reset();
    if (entry.written == 0) entries_.give_fill(entry);
  } else {
    fail(entry, *why);
  }
  const BlockState good = entry.detached ? BlockState::evicting : BlockState::ready;
  if (publish(entry, why == nullptr ? good : BlockState::failed)) shard_.deferred.wake(entry.word);
  const std::uint8_t node = entry.node;
  const bool gone = entry.detached;
  if (gone) reap(entry);
  shard_.space.fit_budget_by(node, gone ? nullptr : &entry);
  shard_.space.released();
  changed();
}

// The copy failed. The block leaves the index, so that the next access tries again; Blocks that
// hold it can still ask for the reason.
void Blocks::fail(CacheEntry& entry, const Error& error) {
  entry.written = 0;
  shard_.hits.count_pins(entry);
  Fill& fill = *entry.fill;
  if (!fill.cancelled) {
    ++counts.failures;
    emit(CacheEvent::Kind::failed, entry.extent(), entry.by_prefetch);
  }
  if (!entry.detached) {
    shard_.hits.index.remove(entry);
    if (entry.planned == 0) shard_.candidates.leave(entry, false);
    entry.detached = 1;
    // The plan does not try again: the copy would probably fail again at once.
    if (entry.planned > 0) shard_.plans.unplan(entry, PlanItem::State::over);
  }
  shard_.hits.forget_bytes(entry);
  shard_.space.give_frame(entry);
  try {
    fill.error = error;
  } catch (const std::bad_alloc&) {
    fill.error = out_of_memory().error();
  }
}

void Blocks::drop(CacheEntry& entry, CacheEvent::Kind why) {
  DCHECK(!entry.kept());
  DCHECK(entry.now() != BlockState::ready ||
         (entry.has(CacheEntry::kCounted) && !entry.has(CacheEntry::kVictim)));
  leave_index(entry, why == CacheEvent::Kind::evicted);
  if (entry.moving != 0) shard_.chain.hurry();  // the move holds the bytes
  if (entry.by_prefetch && !entry.used) counts.wasted_bytes += Bytes{entry.length};
  ++(why == CacheEvent::Kind::invalidated ? counts.invalidations : counts.evictions);
  TenantShares* const tenants = shard_.space.node(entry.node).tenants.get();
  if (tenants != nullptr && why == CacheEvent::Kind::evicted) tenants->count_eviction(entry);
  emit(why, entry.extent(), entry.by_prefetch);
  if (entry.pins == 0) {
    abandon(entry);
  } else if (entry.now() == BlockState::ready) {
    publish(entry, BlockState::evicting);  // nobody waits for a ready block
  }
}

void Blocks::leave_index(CacheEntry& entry, bool evicted) {
  shard_.hits.index.remove(entry);
  if (entry.planned == 0) shard_.candidates.leave(entry, evicted);
  shard_.space.spare(entry);
  entry.detached = 1;
  if (entry.planned > 0) shard_.plans.unplan(entry, PlanItem::State::pending);
}

// The items of plans that protected it are pending until the next pump finds the new entry.
void Blocks::replace(CacheEntry& from, CacheEntry& to) {
  const bool up = to.fill->up;
  const bool noticed = from.has(CacheEntry::kNoticed);
  leave_index(from, !up);
  publish(from, BlockState::evicting);
  entries_.give_fill(to);
  to.by_prefetch = from.by_prefetch;
  to.used = from.used;
  to.word = static_cast<std::uint32_t>(BlockState::ready) | CacheEntry::kCounted |
            (noticed ? CacheEntry::kNoticed : 0);
  shard_.hits.index.insert(to);
  to.detached = 0;
  using Use = Candidates::Use;
  shard_.candidates.enter(to, up ? Use::again : Use::fresh);
  ++(up ? counts.promotions : counts.demotions);
  emit(up ? CacheEvent::Kind::promoted : CacheEvent::Kind::demoted, to.extent(), to.by_prefetch);
  open(to);
  shard_.signals.pump_due = true;
}

// A detached block without pins: frees it, or cancels its copy, whose end frees it.
void Blocks::abandon(CacheEntry& entry) {
  if (entry.now() == BlockState::filling && entry.fill != nullptr) {
    entry.fill->cancelled = true;
    if (entry.fill->transfer) shard_.deferred.cancel(*entry.fill->transfer);
  }
  reap(entry);
}

void Blocks::reap(CacheEntry& entry) {
  if (entry.pins > 0 || entry.now() == BlockState::filling) return;
  shard_.space.give_frame(entry);
  entries_.give(entry);
}

void Blocks::emit(CacheEvent::Kind kind, const Extent& extent, bool by_prefetch) noexcept {
  HEADRACE_PROBE4(block, static_cast<int>(kind), extent.object, extent.offset, extent.length.value);
  if (!shard_.options.observer) return;
  shard_.options.observer({.kind = kind,
                           .extent = extent,
                           .time = shard_.mover.clock().now(),
                           .by_prefetch = by_prefetch});
}

bool Blocks::being_read(ObjectId object) const {
  for (const Fill* fill = fills_.front(); fill != nullptr; fill = fill->next) {
    if (fill->source.object == object) return true;
  }
  return false;
}

const CacheEntry* Blocks::oldest_dirty() const {
  const Fill* oldest = nullptr;
  for (const FillList* list : {&failed_, &writing_, &due_, &dirty_}) {
    const Fill* const first = list->front();
    if (first != nullptr && (oldest == nullptr || first->changed < oldest->changed)) oldest = first;
  }
  return oldest == nullptr ? nullptr : oldest->entry;
}

std::vector<ObjectId> Blocks::reading() const {
  std::vector<ObjectId> objects;
  for (const FillList* list : {&fills_, &dirty_, &due_, &writing_, &failed_}) {
    for (const Fill* fill = list->front(); fill != nullptr; fill = fill->next) {
      const ObjectId object = fill->source.object;
      if (objects.empty() || objects.back() != object) objects.push_back(object);
    }
  }
  files.add_unsynced(objects);
  return objects;
}

}  // namespace headrace
