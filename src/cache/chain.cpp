// SPDX-License-Identifier: Apache-2.0
#include "cache/chain.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cache/core.h"
#include "core/check.h"
#include "core/fail.h"

namespace headrace {

void Chain::begin(CacheEntry& from, bool up) noexcept try {
  if (from.moving != 0 || from.detached != 0 || from.now() != BlockState::ready) return;
  if (from.kept() || from.write_wanted != 0) return;
  Space::Node& node = shard_.space.node(from.node);
  if (up ? node.top || !shard_.space.node(0).may_hold(from.tenant, from.length) : node.last) return;
  CacheEntry& to = shard_.blocks.take(nullptr);
  to.object = from.object;
  to.id = from.id;
  to.offset = from.offset;
  to.fill->from = &from;
  to.fill->entry = &to;
  to.fill->up = up;
  due_.push_back(*to.fill);
  from.moving = 1;
  shard_.space.spare(from);
  shard_.hits.pin(from);
  if (!up) {
    node.leave(from);
    hurry();
  }
} catch (const std::bad_alloc&) {
}

void Chain::hurry() noexcept {
  while (Fill* fill = put_off_.front()) {
    put_off_.remove(*fill);
    due_.push_back(*fill);
  }
  if (due_.front() != nullptr) shard_.signals.moves_due = true;
}

void Chain::promote_soon(CacheEntry& entry) noexcept {
  begin(entry, true);
  if (entry.moving == 0) return;
  const std::uint64_t waiting = shard_.space.node(0).budget / kWaitingShare;
  asked_ += entry.length;
  if (asked_ >= std::min(waiting, kTogether * entry.length)) hurry();
}

void Chain::give_way(CacheEntry& from) {
  for (FillList* list : {&due_, &put_off_}) {
    for (Fill* fill = list->front(); fill != nullptr; fill = fill->next) {
      if (fill->from != &from) continue;
      list->remove(*fill);
      if (fill->up) {
        asked_ -= std::min(asked_, std::uint64_t{from.length});
      } else {
        shard_.space.node(from.node).left(from);
      }
      shard_.blocks.give_unused(*fill->entry);
      from.moving = 0;
      (void)shard_.hits.unpin(from);
      shard_.candidates.unpinned(from);
      return shard_.space.released();
    }
  }
}

bool Chain::demote_row(std::uint16_t number, const Extent& extent) {
  Space::Node& node = shard_.space.node(number);
  const auto may = [&](Frame& frame) {
    return entry_of(frame).droppable(false) && !node.keeps(entry_of(frame));
  };
  const auto accept = [&](EvictionLinks& links) {
    auto& entry = static_cast<CacheEntry&>(links);
    if (entry.dirty != 0) shard_.blocks.make_due(entry);
    return may(entry) &&
           node.frames.find_row(entry, extent.length.value, extent.offset, may, row_) &&
           !node.keeps(row_.frames);
  };
  if (shard_.candidates.choose(node, accept, PrefetchPlan::kSlice) == nullptr) return false;
  for (Frame* frame : row_.frames) begin(entry_of(*frame), false);
  return true;
}

// `has(bytes)`: whether that much of the budget is free or will be. See kFreeShare.
template <class Has>
void Chain::keep_free(std::uint16_t number, const Extent& extent, std::uint64_t budget,
                      const Has& has) {
  const Space::Node& node = shard_.space.node(number);
  const std::uint64_t least = std::min(2 * extent.length.value, budget / 2);
  const std::uint64_t free = std::max(budget / kFreeShare, least);
  if (has(std::max(free / 2, std::min(free, kLeastFree * extent.length.value)))) return;
  for (std::size_t rows = 0; rows < kMostRows; ++rows) {
    const std::uint64_t before = node.leaving;
    if (has(free) || !demote_row(number, extent)) return;
    if (node.leaving == before) return;  // no memory
  }
}

void Chain::make_way(std::uint16_t number, std::uint32_t tenant, const Extent& extent,
                     bool urgent) noexcept try {
  Space::Node& node = shard_.space.node(number);
  const std::uint64_t length = extent.length.value;
  if (node.last || !node.may_hold(tenant, length)) return;
  if (node.tenants != nullptr) {
    TenantShares& shares = *node.tenants;
    const std::uint64_t most = shares.most(tenant, node.budget);
    shares.ask(tenant, length, node.budget);
    const bool full = shares.is_full();
    if (urgent && full && shares.leaving(tenant) < length && !demote_row(number, extent)) return;
    // It asks for as much as is to be free, so that only its own blocks are demoted for that.
    keep_free(number, extent, most, [&](std::uint64_t bytes) {
      shares.ask(tenant, bytes, node.budget);
      return shares.used(tenant) + bytes <= most + shares.leaving(tenant);
    });
    shares.ask(tenant, length, node.budget);
    if (full) return;
  }
  if (urgent && node.leaving < length && !demote_row(number, extent)) return;
  keep_free(number, extent, node.budget,
            [&](std::uint64_t bytes) { return node.used + bytes <= node.budget + node.leaving; });
} catch (const std::bad_alloc&) {
}

bool Chain::clean_some(std::uint16_t number) {
  bool any = shard_.blocks.clean_some(number);
  while (!shard_.space.node(number).last) any = shard_.blocks.clean_some(++number) || any;
  return any;
}

// Whether a move is still of use.
bool Chain::wanted(const CacheEntry& to) const {
  const CacheEntry& from = *to.fill->from;
  if (from.detached != 0) return false;
  if (to.fill->up) return from.pins == 1 || !shard_.options.writable;
  return from.pins == 1 && from.planned == 0;
}

// The first memory from there on that has a gap; the last one evicts.
Space::Outcome Chain::make_space(CacheEntry& to, std::optional<Growth>& growth) {
  const CacheEntry& from = *to.fill->from;
  SpaceRequest request{.tenant = from.tenant, .extent = from.extent()};
  if (!to.fill->up) request.node = static_cast<std::uint16_t>(from.node + 1);
  for (;; ++request.node) {
    const auto found = shard_.space.make(to, request, growth);
    if (found == Space::Outcome::found || found == Space::Outcome::growth) return found;
    if (to.fill->up || shard_.space.node(request.node).last) return found;
  }
}

Chain::Taken Chain::take_due(std::span<CacheEntry*> out) {
  std::array<CacheEntry*, PrefetchPlan::kSlice> sources{};
  std::size_t looks = 0;
  for (Fill* fill = due_.front(); fill != nullptr && looks < out.size(); fill = fill->next) {
    sources[looks++] = fill->from;
  }
  shard_.hits.count_pins(std::span(sources).first(looks));
  Taken taken;
  for (; looks > 0; --looks) {
    CacheEntry& to = *due_.front()->entry;
    if (wanted(to)) {
      const auto space = make_space(to, taken.wanted);
      taken.stuck = space == Space::Outcome::growing && !to.fill->up;
      if (taken.stuck || space == Space::Outcome::growth) break;
      if (space == Space::Outcome::found) {
        start(to);
        out[taken.count++] = &to;
        continue;
      }
    }
    due_.remove(*to.fill);
    if (to.fill->up && to.fill->from->detached == 0 && !wanted(to)) {
      put_off_.push_back(*to.fill);
    } else {
      give_up(to);
    }
  }
  asked_ = 0;
  if (due_.front() == nullptr) shard_.signals.moves_due = false;
  return taken;
}

void Chain::start(CacheEntry& to) {
  Fill& fill = *to.fill;
  due_.remove(fill);
  moving_.push_back(fill);
  shard_.blocks.describe(to);
  const CacheEntry& from = *fill.from;
  const Frames::Slab& slab = shard_.space.node(from.node).frames.slab_of(from);
  fill.bytes = {slab.owner.get(), static_cast<std::uint64_t>(from.data - slab.begin),
                Bytes{from.length}};
  ++shard_.signals.started;
  ++shard_.signals.running;
}

// A move that is not started: no space, or no longer of use.
void Chain::give_up(CacheEntry& to) {
  CacheEntry& from = *to.fill->from;
  const bool up = to.fill->up;
  const bool evict = !up && wanted(to);
  shard_.blocks.give_unused(to);
  if (!up) shard_.space.node(from.node).left(from);
  release(from, evict);
}

void Chain::end(CacheEntry& to, const Error* why) {
  CacheEntry& from = *to.fill->from;
  const bool up = to.fill->up;
  moving_.remove(*to.fill);
  if (from.detached == 0) shard_.hits.count_pins(from);
  const bool moved = why == nullptr && wanted(to);
  const bool evict = why != nullptr && !up;
  const Extent extent = from.extent();
  if (!up) shard_.space.node(from.node).left(from);
  if (moved) {
    shard_.blocks.replace(from, to);
  } else {
    shard_.blocks.give_unused(to);
  }
  release(from, evict);
  if (moved) shard_.space.fit_budget_by(to.node, &to);
  if (moved) make_way(to.node, to.tenant, extent, false);
  shard_.space.released();
}

// The move no longer pins its first entry.
void Chain::release(CacheEntry& from, bool evict) {
  from.moving = 0;
  if (evict && from.detached == 0 && from.pins == 1 && from.planned == 0) {
    shard_.blocks.drop(from, CacheEvent::Kind::evicted);
  }
  shard_.blocks.unpin(from);
}

void Chain::subtract_pinned(Hits::ByTenant& bytes) const {
  for (const FillList* list : {&due_, &put_off_, &moving_}) {
    for (const Fill* fill = list->front(); fill != nullptr; fill = fill->next) {
      if (fill->from->pins == 1) bytes[fill->from->tenant] -= fill->from->length;
    }
  }
}

void Moves::start_due(std::size_t rounds) noexcept {
  while (state_.signals.moves_due.load() && !starting_.exchange(true)) {
    bool more = true;
    try {
      while (more && state_.signals.moves_due.load()) more = start_some() && --rounds > 0;
    } catch (const std::bad_alloc&) {
      more = false;
    }
    starting_ = false;
    if (!more) return;
  }
}

// False: the rest needs memory, or another thread.
bool Moves::start_some() {
  std::array<CacheEntry*, kMost> entries{};
  Chain::Taken taken;
  const bool may_grow = !state_.mover.in_callback();
  {
    const Locked lock(state_);
    taken = state_.chain.take_due(entries);
    if (taken.wanted && !may_grow) state_.space.cancel(*taken.wanted);
  }
  submit(std::span(entries).first(taken.count));
  if (taken.wanted && may_grow) slabs_.grow(*taken.wanted);
  return !taken.stuck && (!taken.wanted || may_grow);
}

void Moves::submit(std::span<CacheEntry* const> entries) noexcept {
  if (entries.empty()) return;
  std::array<Transfer, kMost> transfers;
  try {
    const MoveOptions options{
        .priority = Priority::prefetch, .hint = CopyHint::automatic, .route = state_.options.route};
    std::array<MovePair, kMost> pairs;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      pairs[i] = {entries[i]->fill->to, entries[i]->fill->bytes};
    }
    state_.mover.copy(std::span(pairs).first(entries.size()),
                      std::span(transfers).first(entries.size()), options);
  } catch (const std::bad_alloc&) {
    const Error why = out_of_memory().error();
    for (CacheEntry* entry : entries) fills_.moved(*entry, &why);
    return;
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // Two pointers and the first callback of the transfer: allocates nothing (mover.h).
    transfers[i].on_done([this, entry = entries[i]](const Result<MoveStats>& outcome) {
      fills_.moved(*entry, outcome ? nullptr : &outcome.error());
    });
  }
}

}  // namespace headrace
