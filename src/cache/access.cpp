// SPDX-License-Identifier: Apache-2.0
// A block, from the lookup to the end of its copy.
#include <algorithm>
#include <bit>
#include <new>
#include <thread>
#include <utility>

#include "cache/core.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/waiting/backoff.h"
#include "core/waiting/patience.h"
#include "memory/memory.h"

namespace headrace {
namespace {

// Placement policies are asked for no greater length.
constexpr std::uint64_t kLongestAsked = std::uint64_t{1} << 62;

}  // namespace

void CacheCore::access(std::span<const Extent> extents, std::span<Block> blocks,
                       const AccessOptions& options, Started* together) {
  if (const Status ours = origin_.check(kTheCache); !ours) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (blocks[i].cache_ == nullptr) refuse(extents[i], blocks[i], ours.error());
    }
    return;
  }
  if (extents.size() > 1) serve_all(extents, blocks, options);
  Started own(options.priority);
  Started& all = together == nullptr ? own : *together;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    Block& block = blocks[i];
    if (block.cache_ != nullptr && !block.missing_) continue;
    try {
      miss(extents[i], block, options, all);
    } catch (const std::bad_alloc&) {
      refuse(extents[i], block, Refusal::no_memory);
    }
  }
  own.submit();
  if (!take_pump_due() && !growth_due_) return;
  all.submit();
  pump(true);
}

void CacheCore::serve_all(std::span<const Extent> extents, std::span<Block> blocks,
                          const AccessOptions& options) {
  try {
    for (std::size_t i = 0; i < extents.size();) {
      DeferredActions deferred(*this);
      const MutexLock lock(mutex_);
      if (hits_open_) readers_.join();
      for (const std::size_t end = std::min(extents.size(), i + kSlice); i < end; ++i) {
        if (blocks[i].cache_ == nullptr) serve(extents[i], options, blocks[i], deferred);
      }
    }
  } catch (const std::bad_alloc&) {
    // The other extents are tried one by one.
  }
}

// Makes a Block without a copy.
void CacheCore::refuse(const Extent& extent, Block& block, Error why) {
  block.refused_ = std::make_unique<Error>(std::move(why));
  refuse(extent, block, Refusal::told);
}

void CacheCore::refuse(const Extent& extent, Block& block, Refusal why) {
  block.cache_ = this;
  block.extent_ = extent;
  block.missing_ = false;
  block.refusal_ = why;
}

// Serves an extent that needs no new copy; otherwise the block is missing.
void CacheCore::serve(const Extent& extent, const AccessOptions& options, Block& block,
                      DeferredActions& deferred) {
  block.cache_ = this;
  block.extent_ = extent;
  if (!extent.valid()) return refuse(extent, block, Refusal::invalid);
  block.missing_ = false;
  if (extent.length.value == 0) return;
  block.missing_ = true;
  CacheEntry* const entry = find(range_of(extent));
  if (entry == nullptr) return;
  hit(*entry, extent, options, block, deferred);
  block.missing_ = false;
}

// Serves the extent from a block that exists by now, refuses it, or adds a new block to `all`.
void CacheCore::miss(const Extent& extent, Block& block, const AccessOptions& options,
                     Started& all) {
  Targets targets(*this, extent, options.initiator);
  const Result<Destination>& to = targets.first();
  SpaceRequest request{
      .node = to ? to->node : std::uint16_t{0}, .extent = extent, .priority = options.priority};
  Spare spare(*this);
  bool late = false;    // another thread's slab did not arrive in time
  bool waited = false;  // a block found now was made meanwhile
  std::optional<Patience> patience;
  Backoff naps(kFirstSleep, kLongestSleep);
  for (;;) {
    std::optional<Growth> wanted;
    CacheEntry* started = nullptr;
    Space space = Space::none;
    std::uint32_t changes = 0;
    bool elsewhere = false;
    bool chosen = false;
    {
      DeferredActions deferred(*this);
      const MutexLock lock(mutex_);
      if (hits_open_) readers_.join();
      changes = space_changes_.load();
      serve(extent, options, block, deferred);
      if (!block.missing_) {
        block.hit_ = block.hit_ && !waited;
        return;
      }
      if (to) space = make_space(spare.get(), request, wanted, deferred);
      if (space == Space::growing && late) space = Space::none;
      elsewhere = space == Space::none && targets.more();
      if (space == Space::none && !elsewhere && to) request.node = targets.again();
      if (space == Space::found) {
        count_miss(extent, options, deferred);
        started = &spare.use();
        start(*started, request, deferred);
        started->used = 1;
        pin_in_slot(*started, block);
        block.entry_ = started;
        block.missing_ = false;
        chosen = choose_victims_ahead(nodes_[request.node]);
      } else if (space == Space::none && !elsewhere &&
                 (!to || !may_wait(request, options, patience))) {
        count_miss(extent, options, deferred);
        ++counts_.refusals;
        if (!to) return refuse(extent, block, to.error());
        return refuse_space(request, block);
      } else if (space == Space::none && !elsewhere) {
        let_go_ += stall() ? 1 : 0;  // else it would be refused without a search
      }
    }
    if (started != nullptr) {
      all.add(*this, *started);
      if (chosen) count_victims(request.node, all);
      return;
    }
    waited = waited || !elsewhere;
    if (elsewhere) {
      request.node = targets.next();
    } else if (wanted) {
      grow(*wanted);  // before a callback of what is submitted waits for this slab
    } else if (space == Space::growing) {
      all.submit();
      late = !await_growth(changes);
    } else {
      all.submit();
      mover_.poll();
      patience->sleep(space_changes_, changes, naps.next());
      if (options.stop != nullptr && (*options.stop)()) patience->give_up();
    }
  }
}

void CacheCore::count_miss(const Extent& extent, const AccessOptions& options,
                           DeferredActions& deferred) {
  ++counts_.misses;
  emit(CacheEvent::Kind::miss, extent, false);
  use_planned(range_of(extent), options, deferred);
}

// Whether to wait until a block is released. Not in a callback: threads that hold blocks may wait
// for it.
bool CacheCore::may_wait(const SpaceRequest& request, const AccessOptions& options,
                         std::optional<Patience>& patience) {
  if (options.space_timeout <= Nanoseconds{0} || mover_.in_callback()) return false;
  if (request.extent.length.value > nodes_[request.node].budget) return false;
  if (!patience) patience.emplace(mover_.clock(), mover_.waiting(), options.space_timeout);
  return !patience->over();
}

void CacheCore::refuse_space(const SpaceRequest& request, Block& block) {
  const Node& node = nodes_[request.node];
  const bool too_large = request.extent.length.value > node.budget;
  if (!too_large) stall();  // from now on a release starts another search
  if (node.grow_error) return refuse(request.extent, block, *node.grow_error);
  refuse(request.extent, block, too_large ? Refusal::too_large : Refusal::no_space);
  block.refused_by_ = request.node;
  block.refused_budget_ = Bytes{node.budget};
}

// The shortest ready block that covers the range; else the shortest in flight.
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
  const std::uint32_t planned = entry.planned;
  if (!ready) promote(*entry.fill, options.priority, deferred);
  const bool first = entry.by_prefetch && !entry.used;
  entry.used = 1;  // else a plan that passes over its items might drop it
  use_planned(range_of(extent), options, deferred);
  ++(ready ? counts_.hits : counts_.inflight_hits);
  counts_.first_uses += first;
  counts_.late += first && !ready;
  // The first use of a planned block corresponds to a miss without a plan. An access that names a
  // plan reads a block once, in one or more pieces. Neither is a reason to keep the block.
  if (!first && entry.planned >= planned && options.plan == nullptr) {
    if (entry.planned > 0) {
      entry.visited = true;  // enter_order() asks for it
    } else {
      nodes_[entry.node].order->touch(entry);
    }
  }
  emit(ready ? CacheEvent::Kind::hit : CacheEvent::Kind::inflight_hit, extent, entry.by_prefetch);
  if (ready) open(entry);
  pin_in_slot(entry, block);
  block.entry_ = &entry;
  block.hit_ = ready;
  if (ready) block.bytes_ = entry.bytes_from(extent.offset);
}

// An access needs a prefetched copy now, so the copy becomes as urgent as the access.
void CacheCore::promote(Fill& fill, Priority priority, DeferredActions& deferred) {
  if (priority >= fill.priority) return;
  if (fill.transfer) deferred.promote(*fill.transfer, priority);  // else remember() does it
  fill.priority = priority;
}

void CacheCore::pin(CacheEntry& entry) {
  ++counts_.pins;
  if (entry.pins++ == 0) counts_.pinned_bytes += entry.length;
}

void CacheCore::unpin(CacheEntry& entry, DeferredActions& deferred) {
  --counts_.pins;
  if (--entry.pins > 0) return;
  if (entry.data != nullptr) counts_.pinned_bytes -= entry.length;
  const bool used_up = entry.by_prefetch != 0 && entry.planned == 0;
  if (stalled_ || used_up) offer(entry);
  go_on(deferred);
  Node& node = nodes_[entry.node];
  const bool gone = entry.detached;
  if (gone) abandon(entry, deferred);
  fit_budget_by(node, gone ? nullptr : &entry, deferred);
}

// Puts a new block into the index before its copy is submitted, so that other accesses find it. If
// too many blocks overlap each other (RangeIndex::kMostInCell), one of them is dropped; if that is
// not possible, the new block stays out of the index. Cannot fail.
void CacheCore::start(CacheEntry& entry, const SpaceRequest& request, DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  const Frames::Slab& slab = node.frames.slab_of(entry);
  entry.object = request.extent.object;
  entry.id = request.extent.object->id();
  entry.offset = request.extent.offset;
  entry.node = static_cast<std::uint8_t>(request.node);
  entry.by_prefetch = request.by_prefetch;
  if (node.on_gpu) entry.word.fetch_or(CacheEntry::kOnGpu);
  entry.fill->to = {slab.owner.get(), static_cast<std::uint64_t>(entry.data - slab.begin),
                    request.extent.length};
  entry.fill->object = entry.id;
  entry.fill->priority = request.priority;
  fills_.push_front(*entry.fill);
  if (!hits_open_) entry.word.fetch_or(CacheEntry::kCounted);
  notice(entry);
  if (may_enter_index(entry.range(), deferred)) {
    index_.insert(entry);
    entry.detached = 0;
    using Use = EvictionBlock::Use;
    enter_order(entry, request.by_prefetch ? Use::used_up : Use::fresh);
  } else {
    // As for a dropped block, all its pins are counted.
    entry.word.fetch_or(CacheEntry::kCounted);
  }
  ++running_;
  if (request.by_prefetch) ++counts_.prefetched;
  emit(CacheEvent::Kind::fill_started, request.extent, request.by_prefetch);
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

// Ensures that complete() runs at the end of the copy.
void CacheCore::follow(CacheEntry& entry, const Transfer& transfer, Priority asked) noexcept {
  // Not inside a callback: chains of accesses that start each other must keep the stack flat.
  if (!mover_.in_callback() && complete_at_once(entry, transfer, false)) return;
  if (!transfer.done()) remember(entry, transfer, asked);
  while (!hear(entry, transfer)) {
    // The copy has begun and its end must be seen. The loop is as bounded as the copy.
    mover_.poll();
    if (complete_at_once(entry, transfer, true)) return;
    std::this_thread::sleep_for(kFirstSleep);
  }
}

// Saves a callback if the copy is done already, as most copies by a CPU are. False: it is not done,
// or complete() did nothing.
bool CacheCore::complete_at_once(CacheEntry& entry, const Transfer& transfer,
                                 bool may_call) noexcept {
  const std::optional<Status> outcome = transfer.poll(0);
  if (!outcome) return false;
  return complete(entry, *outcome ? nullptr : &outcome->error(), transfer.took(), may_call);
}

// Calls complete() at the end of the copy. False: there is no memory for the callback.
bool CacheCore::hear(CacheEntry& entry, const Transfer& transfer) {
  try {
    transfer.on_done([this, &entry](const Result<MoveStats>& outcome) {
      complete(entry, outcome ? nullptr : &outcome.error(),
               outcome ? outcome->total : Nanoseconds{0}, true);
    });
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// Stores the transfer for promote() and cancel(). Does now what they asked for before.
void CacheCore::remember(CacheEntry& entry, const Transfer& transfer, Priority asked) {
  Priority wanted = asked;
  bool unwanted = false;
  {
    const MutexLock lock(mutex_);
    Fill& fill = *entry.fill;
    fill.transfer = transfer;
    wanted = fill.priority;
    unwanted = fill.cancelled;
  }
  if (wanted != asked) transfer.promote(wanted);
  if (unwanted) transfer.cancel();
}

// Runs in the thread that ended the copy, also inside submit(). `why`: the error; null: success.
// `may_call`: callbacks of on_ready() may run here. Returns false, and does nothing, if they may
// not and there are some.
bool CacheCore::complete(CacheEntry& entry, const Error* why, Nanoseconds took,
                         bool may_call) noexcept {
  Waiting& waiting = mover_.waiting();
  const std::uint16_t number = entry.node;
  // Before waiting threads are woken, so that they find no block on a lost GPU.
  if (why != nullptr && nodes_[number].on_gpu) lose_if_gone(number);
  bool due = false;
  bool watched = false;
  {
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    if (!may_call && !entry.fill->thens.empty()) return false;
    end_copy(entry, why, took, deferred);
    due = take_pump_due() || deferred.any();
    watched = watchers_ > 0;
    if (!due) --running_;
  }
  const std::atomic<std::uint32_t>& running = running_;
  if (due) {
    pump(false);
    const MutexLock lock(mutex_);
    watched = watchers_ > 0;
    --running_;
  }
  // The cache may be destroyed. A destructor that waits also reads the word by itself.
  if (watched) waiting.wake_all(running);
  return true;
}

void CacheCore::end_copy(CacheEntry& entry, const Error* why, Nanoseconds took,
                         DeferredActions& deferred) {
  Fill& fill = *entry.fill;
  fills_.remove(fill);
  if (fill.transfer) deferred.forget(*std::move(fill.transfer));
  if (!fill.thens.empty()) deferred.call(std::move(fill.thens));
  if (why == nullptr) {
    copy_latency_.record(static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0)));
    latency_ = latency_.count() == 0 ? took : (latency_ * 7 + took) / 8;
    if (!entry.detached) emit(CacheEvent::Kind::ready, entry.extent(), entry.by_prefetch);
    entries_.give_fill(entry);
  } else {
    give_up(entry, *why);
  }
  const BlockState good = entry.detached ? BlockState::evicting : BlockState::ready;
  if (publish(entry, why == nullptr ? good : BlockState::failed)) deferred.awaited = &entry.word;
  Node& node = nodes_[entry.node];
  const bool gone = entry.detached;
  if (gone) reap(entry);
  fit_budget_by(node, gone ? nullptr : &entry, deferred);
  go_on(deferred);
}

void CacheCore::on_ready(CacheEntry& entry, std::function<void()> then) {
  if (origin_.here()) {
    const MutexLock lock(mutex_);
    if (entry.now() == BlockState::filling) {
      entry.fill->thens.push_back(std::move(then));
      return;
    }
  }
  then();
}

// After a GPU is lost: no access finds its blocks, and its budget is 0. New copies go to nodes that
// the placement spills to. A Block that is held keeps an address that no code of the GPU can use.
void CacheCore::lose_if_gone(std::uint16_t number) noexcept try {
  const std::optional<Error> why = loss_of(*mover_.machine().find(nodes_[number].id));
  if (!why) return;
  {
    const MutexLock lock(mutex_);
    Node& node = nodes_[number];
    if (std::exchange(node.lost, true)) return;
    node.budget = 0;
    node.grow_error = why;
    pump_due_ = true;
  }
  drop_all(nodes_[number]);
  for (bool more = true; more;) {
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    more = fit_budget(nodes_[number], deferred);
  }
} catch (const std::bad_alloc&) {
  // The blocks have left the index; their slabs are released with the cache.
}

bool CacheCore::being_read(ObjectId object) const {
  for (const Fill* fill = fills_.front(); fill != nullptr; fill = fill->next) {
    if (fill->object == object) return true;
  }
  return false;
}

// The copy failed. The block leaves the index, so that the next access tries again; Blocks that
// hold it can still ask for the reason.
void CacheCore::give_up(CacheEntry& entry, const Error& error) {
  CacheEntry* const one = &entry;
  count_pins({&one, 1});
  Fill& fill = *entry.fill;
  if (!fill.cancelled) {
    ++counts_.failures;
    emit(CacheEvent::Kind::failed, entry.extent(), entry.by_prefetch);
  }
  if (!entry.detached) {
    index_.remove(entry);
    if (entry.planned == 0) nodes_[entry.node].order->remove(entry);
    entry.detached = 1;
    // The plan does not try again: the copy would probably fail again at once.
    if (entry.planned > 0) unplan(entry, PlanItem::State::over);
  }
  if (entry.pins > 0) counts_.pinned_bytes -= entry.length;
  give_frame(entry);
  try {
    fill.error = error;
  } catch (const std::bad_alloc&) {
    fill.error = out_of_memory().error();
  }
}

// True: a thread must be woken. The value changes before that, and a word that is waited on never
// returns to an old value. So no thread misses the end and sleeps on.
bool CacheCore::publish(CacheEntry& entry, BlockState state) {
  const std::uint32_t kept =
      entry.word.load() & (CacheEntry::kCounted | CacheEntry::kNoticed | CacheEntry::kOnGpu);
  return (entry.word.exchange(static_cast<std::uint32_t>(state) | kept) & CacheEntry::kAwaited) !=
         0;
}

// Asking a policy costs allocations. Policies are pure, so each is asked once for all lengths up to
// the same power of two.
Result<Destination> CacheCore::destination(const Extent& extent,
                                           std::optional<NodeId> initiator) const {
  if (!initiator) initiator = calling_node();
  const std::uint64_t bytes = std::bit_ceil(std::min(extent.length.value, kLongestAsked));
  const NodeId source = extent.object->node();
  const auto known = destinations_.find(source, initiator, bytes);
  if (known) return Destination{static_cast<std::uint16_t>(*known & ~kSpills), *known >= kSpills};
  HEADRACE_TRY(const auto nodes, ask_destinations(extent, initiator));
  const Destination first{nodes.front(), nodes.size() > 1};
  destinations_.remember(source, initiator, bytes,
                         static_cast<std::uint16_t>(first.node | (first.spills ? kSpills : 0)));
  return first;
}

// The first node of the placement with a budget, then the nodes with a budget that it spills to.
Result<std::vector<std::uint16_t>> CacheCore::ask_destinations(
    const Extent& extent, std::optional<NodeId> initiator) const {
  if (!initiator) initiator = calling_node();
  const std::uint64_t bytes = std::bit_ceil(std::min(extent.length.value, kLongestAsked));
  const Machine& machine = mover_.machine();
  // noexcept: policies must not throw, except without memory.
  const auto ask = [&]() noexcept -> Result<Placement> {
    try {
      return options_.placement(
          machine,
          {.source = extent.object->node(), .bytes = Bytes{bytes}, .initiator = initiator});
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    }
  };
  HEADRACE_TRY(Placement placement, ask());
  std::vector<std::uint16_t> found;
  const auto add = [&](NodeId id) {
    const auto at = std::ranges::find(nodes_, id, &Node::id);
    const auto number = static_cast<std::uint16_t>(at - nodes_.begin());
    if (at != nodes_.end() && std::ranges::count(found, number) == 0) found.push_back(number);
  };
  const std::vector<NodeChoice> spill = std::exchange(placement.spill, {});
  if (placement.kind) {
    placement.distribution = Distribution::interleave;
    HEADRACE_TRY(placement, resolve_here(placement, initiator));
  }
  for (const NodeWeight& weight : placement.nodes) {
    if (found.empty()) add(weight.node);
  }
  if (found.empty()) {
    return fail(ErrorCode::absent,
                "no budget for the nodes of the placement; give them one in "
                "CacheOptions::budgets, or another placement policy");
  }
  if (placement.strict) return found;
  for (const NodeChoice& choice : spill) {
    if (const auto* const id = std::get_if<NodeId>(&choice)) {
      add(*id);
      continue;
    }
    const auto kind = Placement::interleave(std::get<NodeKind>(choice));
    HEADRACE_TRY(const Placement nodes, resolve_here(kind, initiator));
    for (const NodeWeight& weight : nodes.nodes) add(weight.node);
  }
  return found;
}

// Like resolve(). For GPUs that are no NUMA nodes: the nearest, then the others with a budget.
Result<Placement> CacheCore::resolve_here(const Placement& placement,
                                          std::optional<NodeId> initiator) const {
  const Machine& machine = mover_.machine();
  Placement alone = placement;
  if (alone.kind == NodeKind::gpu) alone.distribution = Distribution::nearest;
  if (!gpu_of(machine, alone)) return resolve(machine, placement, initiator);
  HEADRACE_TRY(Placement resolved, resolve_with_storage(machine, alone, initiator));
  for (const Node& node : nodes_) {
    if (node.on_gpu) resolved.nodes.push_back({node.id, 1});
  }
  return resolved;
}

std::uint16_t CacheCore::Targets::next() {
  if (nodes_.empty()) {
    auto nodes = core_.ask_destinations(extent_, initiator_);
    nodes_ = nodes ? *std::move(nodes) : std::vector{first_->node};
  }
  if (at_ + 1 >= nodes_.size()) return again();
  return nodes_[++at_];
}

}  // namespace headrace
