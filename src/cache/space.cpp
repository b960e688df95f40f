// SPDX-License-Identifier: Apache-2.0
// Space for a block: frames, slabs, who is evicted for it, and how blocks leave.
//
// The order of what a miss tries is a table in docs/design/cache.md. Nothing is evicted unless it
// makes the space: a row is dropped whole or not at all. Nothing is refused while a slab is being
// made.
#include <algorithm>
#include <functional>
#include <utility>

#include "cache/core.h"
#include "core/check.h"

namespace headrace {
namespace {

// Victims looked at per miss. Among many pins a longer search rarely pays: RocksDB measured 16 x
// less throughput without such a cap than with one of 30 (its PR 12141); twice that here, since a
// refused block costs more than a search.
constexpr unsigned kEffort = 64;
// When the order has made this many offers for each block, it has offered all: it may offer those
// of one queue again before it is through with another (s3_fifo() spends a quarter on each).
constexpr std::size_t kOffers = 4;
// Victims are at most one of so many blocks.
constexpr std::size_t kVictimShare = 16;
// A victim of another size is passed over for one of the size of the request until so many times
// their bytes were replaced: else small blocks and large ones would take each other's places, and
// each time whole rows of blocks that are used would go.
constexpr std::uint64_t kPasses = 32;
// Frames looked at per search, which bounds the rows of many small blocks for one large one.
constexpr unsigned kFrameEffort = 16384;

CacheEntry& entry_of(Frame& frame) { return static_cast<CacheEntry&>(frame); }

std::vector<Frame*> frames_of(const Frames& frames, std::span<std::byte* const> slabs) {
  std::vector<Frame*> found;
  for (const Frames::Slab& slab : frames.slabs()) {
    if (std::ranges::find(slabs, slab.begin) == slabs.end()) continue;
    for (Frame* frame = slab.lowest; frame != nullptr; frame = frame->above) found.push_back(frame);
  }
  return found;
}

}  // namespace

CacheCore::Space CacheCore::make_space(CacheEntry& entry, const SpaceRequest& request,
                                       std::optional<Growth>& wanted, DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  entry.node = static_cast<std::uint8_t>(request.node);
  if (request.extent.length.value > node.budget) return Space::none;
  if (take(entry, request)) return Space::found;
  if ((wanted = growth(request))) return Space::growth;
  if (was_refused(request)) {
    // All blocks that were held are held now. But the order may not have offered all blocks.
    if (node.refused.offered < kOffers * node.frames.count()) {
      node.search = node.refused;
      if (evict_bytes_for(request, deferred) &&
          (take(entry, request) || evict_row_for(entry, request, deferred))) {
        return Space::found;
      }
      node.refused.offered = node.search.offered;
    }
    return node.growing > 0 ? Space::growing : Space::none;
  }
  node.search = {.length = request.extent.length.value,
                 .offset_in_page = request.extent.offset % kPage,
                 .let_go = let_go_,
                 .bounded = growing_is_paused(node)};
  if (evict_bytes_for(request, deferred) &&
      (take(entry, request) || evict_row_for(entry, request, deferred))) {
    return Space::found;
  }
  if (evict_in_slab_for(entry, request, false, deferred)) return Space::found;
  if (free_slabs_for(request, false, deferred) && (wanted = growth(request))) return Space::growth;
  if (!request.by_prefetch) {
    if (sacrifice_for(entry, request, deferred)) return Space::found;
    if (evict_in_slab_for(entry, request, true, deferred)) return Space::found;
    if (free_slabs_for(request, true, deferred) && (wanted = growth(request))) return Space::growth;
    // Once after something was let go: then a long search among pins may find it.
    if (!stalled_ && node.frames.capacity() <= node.budget &&
        search_row_for(entry, request, kFrameEffort, deferred)) {
      return Space::found;
    }
  }
  if (node.used + request.extent.length.value <= node.budget &&
      node.frames.take_unaligned(entry, request.extent.length.value)) {
    node.used += entry.length;
    return Space::found;
  }
  if (node.growing > 0) return Space::growing;
  if (request.by_prefetch) return Space::none;
  const FailedSearch failed = node.search;
  if (request.extent.offset % kPage != 0) {
    // The block with its alignment may fit into no slab.
    SpaceRequest anywhere = request;
    anywhere.extent.offset = 0;
    const Space space = make_space(entry, anywhere, wanted, deferred);
    if (space != Space::none || node.search.bounded) return space;
  }
  if (!failed.bounded) node.refused = failed;
  return Space::none;
}

// Whether an equal demand found no space, and nothing has changed that could make space.
bool CacheCore::was_refused(const SpaceRequest& request) const {
  const FailedSearch& refused = nodes_[request.node].refused;
  return !request.by_prefetch && refused.let_go == let_go_ &&
         request.extent.length.value == refused.length &&
         request.extent.offset % kPage == refused.offset_in_page;
}

bool CacheCore::take(CacheEntry& entry, const SpaceRequest& request) {
  Node& node = nodes_[request.node];
  const std::uint64_t length = request.extent.length.value;
  if (node.used + length > node.budget) return false;  // slabs that pins keep beyond the budget
  if (!node.frames.take(entry, length, request.extent.offset)) return false;
  node.used += length;
  return true;
}

bool CacheCore::droppable(const CacheEntry& entry, bool planned_too) {
  return entry.pins == 0 && entry.now() == BlockState::ready && (planned_too || entry.planned == 0);
}

// Until the bytes fit into the budget. Only needed after a shrinking resize() that pins resisted.
bool CacheCore::evict_bytes_for(const SpaceRequest& request, DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  if (node.frames.capacity() <= node.budget) return true;  // what fits into the slabs fits
  while (node.used + request.extent.length.value > node.budget) {
    const auto accept = [&](EvictionLinks& links) {
      return droppable(static_cast<CacheEntry&>(links), false);
    };
    EvictionLinks* const links = node.order->choose(accept, kEffort);
    if (links == nullptr) return false;
    CacheEntry* const victim = static_cast<CacheEntry*>(links);
    count_pins({&victim, 1});
    if (droppable(*victim, false)) drop(*victim, CacheEvent::Kind::evicted, deferred);
  }
  return true;
}

struct CacheCore::Search {
  const CacheCore& core;
  const SpaceRequest& request;
  bool planned_too;
  Frames::Row& row;
  unsigned effort = kFrameEffort;

  bool from(CacheEntry& entry) {
    if (effort == 0 || !droppable(entry, planned_too)) return false;
    const auto may = [this](Frame& frame) {
      return effort > 0 && effort-- > 0 && droppable(entry_of(frame), planned_too);
    };
    return core.nodes_[request.node].frames.find_row(entry, request.extent.length.value,
                                                     request.extent.offset, may, row);
  }
};

// Blocks that lie in a row around a victim: one, if all blocks are of one size.
bool CacheCore::evict_row_for(CacheEntry& entry, const SpaceRequest& request,
                              DeferredActions& deferred) {
  if (evict_similar_for(entry, request, deferred)) return true;
  if (choose_victims(nodes_[request.node]) && evict_similar_for(entry, request, deferred)) {
    return true;
  }
  return evict_victim_for(entry, request, deferred) ||
         search_row_for(entry, request, kEffort, deferred);
}

// The same by the order alone, which offers at most `effort` blocks.
bool CacheCore::search_row_for(CacheEntry& entry, const SpaceRequest& request, unsigned effort,
                               DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  Search search{.core = *this, .request = request, .planned_too = false, .row = row_};
  unsigned offered = 0;
  const auto accept = [&](EvictionLinks& links) {
    ++offered;
    return search.from(static_cast<CacheEntry&>(links));
  };
  // Each row that turns out to be held by a slot is known to be held the next time.
  for (unsigned tries = kEffort; tries > 0; --tries) {
    offered = 0;
    if (node.order->choose(accept, effort) == nullptr) {
      if (search.effort > 0)
        node.search.offered += offered < effort ? kOffers * node.frames.count() : offered;
      return false;
    }
    if (!may_go(search.row.frames, false)) {
      // Slots are likely to hold many more.
      if (tries == kEffort / 2) count_pins_in_slots(node);
      continue;
    }
    take_row(entry, request, search.row, deferred);
    return true;
  }
  return false;
}

// A slot may name an entry that is no block of the node, or none at all: its thread has not looked
// yet (P3).
void CacheCore::count_pins_in_slots(const Node& node) {
  std::vector<CacheEntry*> held = readers_.pinned();
  std::erase_if(held, [&](const CacheEntry* entry) {
    return entry->now() != BlockState::ready || &nodes_[entry->node] != &node;
  });
  count_pins(held);
}

// The order has the blocks of the index that no plan protects.
void CacheCore::enter_order(CacheEntry& entry, EvictionBlock::Use use) {
  nodes_[entry.node].order->insert(
      entry, {.key = key_of(entry.range()), .bytes = entry.length, .use = use});
}

// The next in the order, as many as are few of all. Those that were chosen before go first. False:
// there are no more.
bool CacheCore::pick_victims(Node& node) {
  const std::size_t most = most_victims(node);
  if (node.victims.size() >= most) return false;
  const std::size_t wanted = most - node.victims.size();
  const auto before = static_cast<std::ptrdiff_t>(node.victims.size());
  const auto accept = [&](EvictionLinks& links) {
    auto& entry = static_cast<CacheEntry&>(links);
    if (entry.chosen != 0 || !droppable(entry, false)) return false;
    node.victims.push_back(&entry);
    entry.chosen = 1;
    return node.victims.size() >= most;
  };
  // An order with several queues spends a part of the effort on each (s3_fifo() a quarter): enough
  // for the one whose turn it is to give all. Less where most blocks are held.
  node.order->choose(accept, node.victims_are_scarce ? 2 * kVictims : 8 * kVictims);
  node.victims_are_scarce = 2 * (node.victims.size() - static_cast<std::size_t>(before)) < wanted;
  std::ranges::reverse(node.victims);
  std::reverse(node.victims.end() - before, node.victims.end());
  return std::cmp_greater(node.victims.size(), before);
}

// With hits closed nothing is in slots, so that there is no fence to share.
std::size_t CacheCore::most_victims(const Node& node) const {
  const std::size_t most = std::min(kVictims, node.frames.count() / kVictimShare);
  return most < 2 || !hits_open_ ? 0 : most;
}

bool CacheCore::choose_victims(Node& node) {
  if (!pick_victims(node)) return false;
  count_pins(node.victims);
  for (CacheEntry* victim : node.victims) victim->word.fetch_or(CacheEntry::kVictim);
  return true;
}

// The same ahead of need, so that the fence is waited for without the lock: only D1. True:
// count_victims() is to follow.
bool CacheCore::choose_victims_ahead(Node& node) {
  if (node.counting || node.victims_are_scarce || node.victims.empty() ||
      node.victims.size() >= most_victims(node) / 4 || !pick_victims(node)) {
    return false;
  }
  for (CacheEntry* victim : node.victims) {
    if (!victim->has(CacheEntry::kCounted)) {
      victim->word.fetch_or(CacheEntry::kCounted | CacheEntry::kUncounted);
    }
  }
  node.counting = true;
  return true;
}

void CacheCore::count_victims(std::uint16_t number, Started& before) {
  before.submit();  // the fence takes a while
  readers_.fence();
  const MutexLock lock(mutex_);
  Node& node = nodes_[number];
  count_pins_of(CacheEntry::kUncounted);
  for (CacheEntry* victim : node.victims) {
    if (!victim->has(CacheEntry::kUncounted)) continue;
    victim->word.fetch_xor(CacheEntry::kUncounted | CacheEntry::kVictim);
  }
  node.counting = false;
}

// A block that was let go where space was lacking, or that plans have used up, is tried before the
// order is asked: among very many pins that would take a while to come to it. It may be another by
// now, if it was let go without the lock.
void CacheCore::offer(CacheEntry& entry) {
  Node& node = nodes_[entry.node];
  if (entry.chosen != 0 || entry.detached != 0 || !droppable(entry, false) || entry.visited) return;
  if (node.victims.size() == kVictims) return;
  entry.chosen = 1;
  node.victims.push_back(&entry);
}

// No victim any more.
void CacheCore::spare(CacheEntry& entry) {
  if (entry.chosen == 0) return;
  entry.chosen = 0;
  auto& victims = nodes_[entry.node].victims;
  // Most often the last.
  const auto at = std::ranges::find(victims.rbegin(), victims.rend(), &entry);
  victims.erase(std::prev(at.base()));
}

// The first victim of about the size of the request. See kPasses.
bool CacheCore::evict_similar_for(CacheEntry& entry, const SpaceRequest& request,
                                  DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  const std::uint64_t length = request.extent.length.value;
  Search search{.core = *this, .request = request, .planned_too = false, .row = row_};
  bool passes = false;
  for (std::size_t i = node.victims.size(); i-- > 0;) {
    CacheEntry& victim = *node.victims[i];
    if (victim.has(CacheEntry::kUncounted)) continue;
    if (!droppable(victim, false) || victim.visited) {
      spare(victim);
      continue;
    }
    const bool similar = length <= victim.length && length > victim.length / 2;
    if (replace(victim, entry, request, deferred) ||
        (similar && take_row_of(victim, entry, search, deferred))) {
      if (passes) node.passed += length;
      return true;
    }
    if (!passes && node.passed >= kPasses * std::max(length, std::uint64_t{victim.length})) break;
    passes = true;
  }
  return false;
}

// The row of the first victim that has one.
bool CacheCore::evict_victim_for(CacheEntry& entry, const SpaceRequest& request,
                                 DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  Search search{.core = *this, .request = request, .planned_too = false, .row = row_};
  for (std::size_t i = node.victims.size(); i-- > 0;) {
    // One whose row does not suffice stays for a smaller block.
    if (!take_row_of(*node.victims[i], entry, search, deferred)) continue;
    node.passed = 0;
    return true;
  }
  return false;
}

bool CacheCore::take_row_of(CacheEntry& victim, CacheEntry& entry, Search& search,
                            DeferredActions& deferred) {
  if (!search.from(victim) || !may_go(search.row.frames, false)) return false;
  take_row(entry, search.request, search.row, deferred);
  return true;
}

// The usual case: a block goes for one of its size.
bool CacheCore::replace(CacheEntry& victim, CacheEntry& entry, const SpaceRequest& request,
                        DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  const std::uint64_t length = request.extent.length.value;
  if (!node.frames.replaceable(victim, length, request.extent.offset)) return false;
  CacheEntry* const one = &victim;
  count_pins({&one, 1});
  if (!droppable(victim, false)) return false;
  node.used += length;
  node.used -= victim.length;
  node.frames.replace(victim, entry, length, request.extent.offset);
  drop(victim, CacheEvent::Kind::evicted, deferred);
  return true;
}

void CacheCore::take_row(CacheEntry& entry, const SpaceRequest& request, const Frames::Row& row,
                         DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  for (Frame* frame : row.frames) drop(entry_of(*frame), CacheEvent::Kind::evicted, deferred);
  node.frames.take_row(entry, row, request.extent.length.value, request.extent.offset);
  node.used += entry.length;
}

// The same in a slab whose blocks can all go, if there is one with space for the block: finds what
// a search of bounded effort among the pins of other slabs missed.
bool CacheCore::evict_in_slab_for(CacheEntry& entry, const SpaceRequest& request, bool planned_too,
                                  DeferredActions& deferred) {
  const Frames& frames = nodes_[request.node].frames;
  if (frames.capacity() > nodes_[request.node].budget) return false;
  const auto droppable_now = [&](Frame& frame) { return droppable(entry_of(frame), planned_too); };
  for (const Frames::Slab& slab : frames.slabs()) {
    if (slab.lowest == nullptr || slab.size < request.extent.length.value) continue;
    if (frames.blocker(slab, droppable_now) != nullptr) continue;
    if (!frames.find_row(*slab.lowest, request.extent.length.value, request.extent.offset,
                         droppable_now, row_)) {
      continue;  // too small for its alignment
    }
    if (!may_go(row_.frames, planned_too)) continue;
    take_row(entry, request, row_, deferred);
    return true;
  }
  return false;
}

// The last resort of an access: what plans have fetched for their furthest uses. Those items are
// pending again and will be fetched once more when there is space.
bool CacheCore::sacrifice_for(CacheEntry& entry, const SpaceRequest& request,
                              DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  if (node.frames.capacity() > node.budget) return false;
  std::vector<PrefetchPlan*> plans;
  for (const auto& plan : plans_) plans.push_back(plan.get());
  const Nanoseconds now = mover_.clock().now();
  std::ranges::sort(plans, std::greater<>{}, [now](const PrefetchPlan* plan) {
    return std::pair(plan->is_stalled(now), plan->ahead);
  });
  Search search{.core = *this, .request = request, .planned_too = true, .row = row_};
  unsigned looks = kFrameEffort;
  for (PrefetchPlan* plan : plans) {
    unsigned left = kEffort;
    for (std::size_t i = plan->furthest_started(); i-- > plan->oldest && left > 0 && looks > 0;) {
      --looks;
      CacheEntry* const planned = plan->items[i].entry;
      if (planned == nullptr || planned->node != request.node) continue;
      --left;
      if (!search.from(*planned) || !may_go(search.row.frames, true)) continue;
      take_row(entry, request, search.row, deferred);
      return true;
    }
    if (left == 0 || looks == 0 || search.effort == 0) node.search.bounded = true;
  }
  return false;
}

// Gives slabs back, the emptiest first, until the budget has space for a slab for the block. Does
// nothing if there are not enough whose blocks can all be dropped, nor if one of them has the size
// already: a new one would be no better.
bool CacheCore::free_slabs_for(const SpaceRequest& request, bool planned_too,
                               DeferredActions& deferred) {
  Node& node = nodes_[request.node];
  // Each choice of which a slot holds something teaches that it is held.
  for (unsigned tries = kEffort; tries > 0; --tries) {
    const auto chosen = slabs_for(request, planned_too);
    if (chosen.empty()) return false;
    if (!may_go(frames_of(node.frames, chosen), planned_too)) continue;
    for (const std::byte* begin : chosen) free_slab(node, begin, deferred);
    return true;
  }
  node.search.bounded = true;
  return false;
}

// Those to give back; none: it would not help.
std::vector<std::byte*> CacheCore::slabs_for(const SpaceRequest& request, bool planned_too) {
  Node& node = nodes_[request.node];
  const std::uint64_t space = std::min(slab_for(request.extent), node.budget);
  if (growing_is_paused(node) ||
      space / Frames::kGranule * Frames::kGranule < request.extent.length.value) {
    return {};  // they would go for nothing
  }
  std::vector<const Frames::Slab*> slabs;
  for (const Frames::Slab& slab : node.frames.slabs()) {
    const auto droppable_now = [&](Frame& frame) {
      return droppable(entry_of(frame), planned_too);
    };
    if (node.frames.blocker(slab, droppable_now) != nullptr) continue;
    if (slab.size >= request.extent.length.value) return {};
    slabs.push_back(&slab);
  }
  std::ranges::sort(slabs, {}, &Frames::Slab::used);
  std::uint64_t taken = node.frames.capacity() + node.growing;
  std::vector<std::byte*> chosen;
  for (const Frames::Slab* slab : slabs) {
    if (taken + space <= node.budget) break;
    taken -= slab->capacity;
    chosen.push_back(slab->begin);
  }
  if (taken + space > node.budget) return {};
  return chosen;
}

// Blocks that plans protect, and which therefore no order has, until `take` says that it is enough.
void CacheCore::visit_planned(const Node& node, const std::function<bool(CacheEntry&)>& take) {
  unsigned looks = kFrameEffort;
  for (const Frames::Slab& slab : node.frames.slabs()) {
    for (Frame* frame = slab.lowest; frame != nullptr; frame = frame->above) {
      CacheEntry& entry = entry_of(*frame);
      if (looks-- == 0 || (entry.planned > 0 && take(entry))) return;
    }
  }
}

// After the budget became smaller, or a slab came too late for it. Protection by plans does not
// count here; the items become pending again. A slab or a slice of blocks at a time; false: there
// is no more to do.
bool CacheCore::fit_budget(Node& node, DeferredActions& deferred) {
  if (free_surplus_slab(node, deferred)) return true;
  if (node.used <= node.budget) return false;
  std::vector<CacheEntry*> blocks;
  const auto take = [&](CacheEntry& entry) {
    if (droppable(entry, true)) blocks.push_back(&entry);
    return blocks.size() == kSlice;
  };
  node.order->choose([&](EvictionLinks& links) { return take(static_cast<CacheEntry&>(links)); },
                     kFrameEffort);
  if (drop_until_fit(node, blocks, deferred)) return true;
  blocks.clear();
  visit_planned(node, take);
  return drop_until_fit(node, blocks, deferred);
}

// False: slots hold all of these blocks.
bool CacheCore::drop_until_fit(Node& node, std::span<CacheEntry* const> blocks,
                               DeferredActions& deferred) {
  count_pins(blocks);
  bool any = false;
  for (CacheEntry* block : blocks) {
    if (node.used <= node.budget) break;
    if (!droppable(*block, true)) continue;
    drop(*block, CacheEvent::Kind::evicted, deferred);
    any = true;
  }
  return any;
}

// The same after one block (null: gone already) became droppable while the node is over its budget.
void CacheCore::fit_budget_by(Node& node, CacheEntry* freed, DeferredActions& deferred) {
  if (node.frames.capacity() <= node.budget) return;
  try {
    if (node.used > node.budget && freed != nullptr) {
      count_pins({&freed, 1});
      if (droppable(*freed, true)) drop(*freed, CacheEvent::Kind::evicted, deferred);
    }
    free_surplus_slab(node, deferred);
  } catch (const std::bad_alloc&) {
    // The next that is let go tries again.
  }
}

// Gives back the emptiest slab without pins and copies in flight. Only whole slabs count: a block
// dropped from one that stays would be fetched again by its plan, and dropped, for ever.
bool CacheCore::free_surplus_slab(Node& node, DeferredActions& deferred) {
  // Again while a slot turns out to hold something of the one chosen.
  for (unsigned tries = kEffort; tries > 0; --tries) {
    std::byte* const chosen = surplus_slab(node);
    if (chosen == nullptr) return false;
    if (!may_go(frames_of(node.frames, {&chosen, 1}), true)) continue;
    free_slab(node, chosen, deferred);
    return true;
  }
  return false;
}

std::byte* CacheCore::surplus_slab(const Node& node) {
  if (node.frames.capacity() <= node.budget) return nullptr;
  const auto droppable_now = [](Frame& frame) { return droppable(entry_of(frame), true); };
  const Frames::Slab* emptiest = nullptr;
  for (const Frames::Slab& slab : node.frames.slabs()) {
    if (emptiest != nullptr && slab.used >= emptiest->used) continue;
    if (node.frames.blocker(slab, droppable_now) == nullptr) emptiest = &slab;
  }
  return emptiest == nullptr ? nullptr : emptiest->begin;
}

// Out of the index. Its bytes stay as long as a Block holds it or an engine writes to it.
void CacheCore::drop(CacheEntry& entry, CacheEvent::Kind why, DeferredActions& deferred) {
  DCHECK(entry.now() != BlockState::ready ||
         (entry.has(CacheEntry::kCounted) && !entry.has(CacheEntry::kVictim)));
  index_.remove(entry);
  if (entry.planned == 0) {
    EvictionOrder& order = *nodes_[entry.node].order;
    if (why == CacheEvent::Kind::evicted) {
      order.evict(entry, key_of(entry.range()));
    } else {
      order.remove(entry);
    }
  }
  spare(entry);
  entry.detached = 1;
  if (entry.planned > 0) unplan(entry, PlanItem::State::pending);
  if (entry.by_prefetch && !entry.used) counts_.wasted_bytes += entry.length;
  ++(why == CacheEvent::Kind::invalidated ? counts_.invalidations : counts_.evictions);
  emit(why, entry.extent(), entry.by_prefetch);
  if (entry.pins == 0) {
    abandon(entry, deferred);
  } else if (entry.now() == BlockState::ready) {
    publish(entry, BlockState::evicting);  // nobody waits for what is ready
  }
}

// A detached block that nobody holds: delete it, or stop its copy, whose end will.
void CacheCore::abandon(CacheEntry& entry, DeferredActions& deferred) {
  if (entry.now() == BlockState::filling && entry.fill != nullptr) {
    entry.fill->cancelled = true;
    if (entry.fill->transfer) deferred.cancel(*entry.fill->transfer);
  }
  reap(entry);
}

void CacheCore::reap(CacheEntry& entry) {
  if (entry.pins > 0 || entry.now() == BlockState::filling) return;
  give_frame(entry);
  entries_.give(entry);
}

void CacheCore::give_frame(CacheEntry& entry) {
  if (entry.data == nullptr) return;
  Node& node = nodes_[entry.node];
  node.used -= entry.length;
  node.frames.give(entry);
}

}  // namespace headrace
