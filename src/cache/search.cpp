// SPDX-License-Identifier: Apache-2.0
// The search for the space of one block. A table in docs/design/cache/space.md has its order.
#include <algorithm>
#include <optional>
#include <utility>

#include "cache/blocks.h"
#include "cache/space.h"

namespace headrace {
namespace {

// After this many offers per block, the order has offered all blocks. An order may repeat the
// blocks of one queue before it is done with another (s3_fifo() spends a quarter on each).
constexpr std::size_t kOffers = 4;
// Victims of about the request's size go first, until this many times the bytes of a passed-over
// victim were replaced. Otherwise small and large blocks would take each other's places, and each
// time whole rows of used blocks would be evicted.
constexpr std::uint64_t kPasses = 32;

}  // namespace

// The search of one request. Its steps return whether the entry has its frame.
class SpaceSearch {
 public:
  SpaceSearch(Space& space, CacheEntry& entry, const SpaceRequest& request)
      : space_(space),
        shard_(space.shard_),
        node_(space.nodes_[request.node]),
        entry_(entry),
        request_(request),
        length_(request.extent.length.value) {}

  Space::Outcome run(std::optional<Growth>& wanted);

 private:
  // The rows around victims, with a common bound.
  struct Rows {
    SpaceSearch& search;
    bool planned_too = false;
    unsigned effort = Space::kFrameEffort;

    // Finds space_.row_ around a victim, of blocks that its tenants do not keep.
    bool from(CacheEntry& victim);
  };

  auto droppable(bool planned_too) const {
    return [this, planned_too](Frame& frame) {
      return entry_of(frame).droppable(planned_too) && !node_.keeps(entry_of(frame));
    };
  }
  void make_way() { shard_.chain.make_way(request_.node, request_.tenant, request_.extent, true); }
  bool take();
  bool evict_bytes();
  bool evict_one();
  bool evict_own();
  bool evict_own_victim();
  bool evict_own_planned();
  bool evict_row();
  bool search_row(unsigned effort, std::optional<std::uint32_t> tenant = {});
  void count_pins_in_slots();
  bool evict_similar(std::uint32_t tenant);
  bool evict_victim(std::uint32_t tenant);
  bool evict_in_slab(bool planned_too);
  bool sacrifice();
  bool replace(CacheEntry& victim);
  bool take_row_of(CacheEntry& victim, Rows& rows);
  void take_row();
  bool free_slabs(bool planned_too);
  std::vector<std::byte*> slabs_to_free(bool planned_too) const;

  Space& space_;
  const Shard& shard_;
  Space::Node& node_;
  CacheEntry& entry_;
  const SpaceRequest& request_;
  const std::uint64_t length_;
  bool passes_ = false;  // older victims of other sizes; see kPasses
  bool passed_enough_ = false;
};

Space::Outcome Space::make(CacheEntry& entry, const SpaceRequest& request,
                           std::optional<Growth>& wanted) {
  entry.node = static_cast<std::uint8_t>(request.node);
  entry.tenant = request.tenant & (CacheEntry::kMostTenants - 1);
  if (request.extent.length.value > nodes_[request.node].budget) return Outcome::none;
  return SpaceSearch(*this, entry, request).run(wanted);
}

bool Space::go_on_in_chain(SpaceRequest& request) const {
  if (shard_.options.chain.empty()) return false;
  if (!request.last_resort && !nodes_[request.node].last) {
    ++request.node;
    return true;
  }
  request.last_resort = !request.last_resort;
  shard_.chain.hurry();  // moves hold blocks that could be evicted
  const auto large = [&](const Node& node) {
    return node.may_hold(request.tenant, request.extent.length.value);
  };
  const auto found = std::ranges::find_if(nodes_, large);
  request.node =
      found == nodes_.end() ? std::uint16_t{0} : static_cast<std::uint16_t>(found - nodes_.begin());
  return request.last_resort;
}

Space::Outcome SpaceSearch::run(std::optional<Growth>& wanted) {
  using Outcome = Space::Outcome;
  const bool demotes = !node_.last && !request_.last_resort;
  if (node_.tenants != nullptr) {
    node_.tenants->ask(request_.tenant, length_, node_.budget);
    if (demotes && node_.tenants->is_full()) {
      make_way();
      return Outcome::none;
    }
    if (!evict_own()) return Outcome::none;
  }
  if (take()) return Outcome::found;
  if ((wanted = space_.growth(request_))) return Outcome::growth;
  if (demotes) {
    make_way();
    return node_.growing > 0 ? Outcome::growing : Outcome::none;
  }
  if (!request_.by_prefetch && space_.was_refused(node_, request_.extent) &&
      request_.tenant == node_.refused.tenant) {
    // All pinned blocks are still pinned. But the order may not have offered all blocks.
    if (node_.refused.offered < kOffers * node_.frames.count()) {
      node_.search = node_.refused;
      if (evict_bytes() && (take() || evict_row())) return Outcome::found;
      node_.refused.offered = node_.search.offered;
    }
    return node_.growing > 0 ? Outcome::growing : Outcome::none;
  }
  node_.search = {.length = length_,
                  .offset_in_page = request_.extent.offset % Space::kPage,
                  .let_go = space_.let_go_,
                  .bounded = space_.growing_is_paused(node_),
                  .tenant = request_.tenant};
  if (evict_bytes() && (take() || evict_row())) return Outcome::found;
  if (evict_in_slab(false)) return Outcome::found;
  if (free_slabs(false) && (wanted = space_.growth(request_))) return Outcome::growth;
  if (!request_.by_prefetch) {
    if (sacrifice() || evict_in_slab(true)) return Outcome::found;
    if (free_slabs(true) && (wanted = space_.growth(request_))) return Outcome::growth;
    // Once after a release: a long search among pins may find the released block.
    if (!space_.stalled_ && node_.frames.capacity() <= node_.budget &&
        search_row(Space::kFrameEffort)) {
      return Outcome::found;
    }
  }
  if (node_.used + length_ <= node_.budget && node_.frames.take_unaligned(entry_, length_)) {
    node_.count(entry_);
    return Outcome::found;
  }
  if (node_.growing > 0) return Outcome::growing;
  if (request_.by_prefetch) return Outcome::none;
  const Space::FailedSearch failed = node_.search;
  if (request_.extent.offset % Space::kPage != 0) {
    // The block with its alignment may not fit into any slab.
    SpaceRequest anywhere = request_;
    anywhere.extent.offset = 0;
    const Outcome outcome = SpaceSearch(space_, entry_, anywhere).run(wanted);
    if (outcome != Outcome::none || node_.search.bounded) return outcome;
  }
  if (!failed.bounded) node_.refused = failed;
  return Outcome::none;
}

bool Space::was_refused(const Node& node, const Extent& extent) const {
  const FailedSearch& refused = node.refused;
  return refused.let_go == let_go_ && extent.length.value == refused.length &&
         extent.offset % kPage == refused.offset_in_page;
}

bool SpaceSearch::take() {
  if (node_.used + length_ > node_.budget) return false;  // slabs that pins keep beyond the budget
  if (!node_.frames.take(entry_, length_, request_.extent.offset)) return false;
  node_.count(entry_);
  return true;
}

// Evicts until the bytes fit into the budget: needed only while pins keep a node above its budget.
bool SpaceSearch::evict_bytes() {
  if (node_.frames.capacity() <= node_.budget) return true;  // the slabs are the tighter limit
  while (node_.used + length_ > node_.budget) {
    if (!evict_one()) return false;
  }
  return true;
}

// Evicts the next in the order. A block that a slot pins is known to be pinned the next time.
bool SpaceSearch::evict_one() {
  const auto accept = [this](EvictionLinks& links) {
    auto& entry = static_cast<CacheEntry&>(links);
    return entry.droppable(false) && !node_.keeps(entry);
  };
  CacheEntry* const victim = shard_.candidates.choose(node_, accept, Space::kEffort);
  if (victim == nullptr) return false;
  shard_.hits.count_pins(*victim);
  if (victim->droppable(false)) shard_.blocks.drop(*victim, CacheEvent::Kind::evicted);
  return true;
}

// Evicts until the block fits into its tenant's `most`.
bool SpaceSearch::evict_own() {
  if (!node_.tenants->may_fit()) return false;
  while (node_.tenants->is_full()) {
    if (evict_own_victim() || (space_.choose_victims(node_, request_.tenant) && evict_own_victim()))
      continue;
    if (!evict_one() && (request_.by_prefetch || !evict_own_planned())) return false;
  }
  return true;
}

bool SpaceSearch::evict_own_victim() {
  const std::vector<CacheEntry*>& victims = node_.queues[request_.tenant].victims;
  for (std::size_t i = victims.size(); i-- > 0;) {
    CacheEntry& victim = *victims[i];
    if (victim.has(CacheEntry::kUncounted)) continue;
    const bool may = victim.droppable(false) && !victim.visited;
    if (may) shard_.hits.count_pins(victim);
    if (may && victim.droppable(false)) {
      shard_.blocks.drop(victim, CacheEvent::Kind::evicted);
      return true;
    }
    space_.spare(victim);
  }
  return false;
}

// The last resort of an access: a block that a plan fetched.
bool SpaceSearch::evict_own_planned() {
  CacheEntry* found = nullptr;
  space_.visit_planned(node_, [&](CacheEntry& entry) {
    if (entry.tenant == request_.tenant && entry.droppable(true)) found = &entry;
    return found != nullptr;
  });
  if (found == nullptr) return false;
  shard_.hits.count_pins(*found);
  if (found->droppable(true)) shard_.blocks.drop(*found, CacheEvent::Kind::evicted);
  return true;
}

bool SpaceSearch::Rows::from(CacheEntry& victim) {
  const auto droppable = search.droppable(planned_too);
  if (effort == 0 || !droppable(victim)) return false;
  const auto may = [&](Frame& frame) { return effort > 0 && effort-- > 0 && droppable(frame); };
  return search.node_.frames.find_row(victim, search.length_, search.request_.extent.offset, may,
                                      search.space_.row_) &&
         !search.node_.keeps(search.space_.row_.frames);
}

// Evicts a row of blocks around a victim. If all blocks have one size, the row is one block.
bool SpaceSearch::evict_row() {
  passes_ = passed_enough_ = false;
  for (const std::uint32_t tenant : node_.turns()) {
    if (evict_similar(tenant)) return true;
    if (space_.choose_victims(node_, tenant) && evict_similar(tenant)) return true;
    // It has too few blocks to choose some ahead. The next tenant must not lose one instead.
    const bool few = space_.most_victims(node_.queues[tenant]) == 0;
    if (node_.tenants != nullptr && few && search_row(Space::kEffort, tenant)) return true;
    if (passed_enough_) break;
    if (node_.tenants != nullptr && evict_victim(tenant)) return true;  // of another size
  }
  for (const std::uint32_t tenant : node_.turns()) {
    if (evict_victim(tenant)) return true;
  }
  return search_row(Space::kEffort);
}

// Like evict_row(), but only with blocks that the order offers, at most `effort` of each tenant.
bool SpaceSearch::search_row(unsigned effort, std::optional<std::uint32_t> tenant) {
  Rows rows{*this};
  unsigned offered = 0;
  const auto accept = [&](EvictionLinks& links) {
    ++offered;
    return rows.from(static_cast<CacheEntry&>(links));
  };
  // A row that a slot pins is known to be pinned the next time.
  for (unsigned tries = Space::kEffort; tries > 0; --tries) {
    offered = 0;
    const CacheEntry* const found = tenant
                                        ? shard_.candidates.choose(node_, *tenant, accept, effort)
                                        : shard_.candidates.choose(node_, accept, effort);
    if (found == nullptr) {
      const bool all = offered < effort && !tenant;
      if (rows.effort > 0) node_.search.offered += all ? kOffers * node_.frames.count() : offered;
      return false;
    }
    if (!shard_.hits.may_go(space_.row_.frames, false)) {
      // Slots probably pin many more.
      if (tries == Space::kEffort / 2) count_pins_in_slots();
      continue;
    }
    take_row();
    return true;
  }
  return false;
}

// A slot may hold another node's block or an unused entry: its thread has not reached P3.
void SpaceSearch::count_pins_in_slots() {
  std::vector<CacheEntry*> held = shard_.hits.readers.pinned();
  std::erase_if(held, [&](const CacheEntry* entry) {
    return entry->now() != BlockState::ready || entry->node != request_.node;
  });
  shard_.hits.count_pins(held);
}

// Evicts the tenant's first victim of about the request's size. See kPasses.
bool SpaceSearch::evict_similar(std::uint32_t tenant) {
  Rows rows{*this};
  const std::vector<CacheEntry*>& victims = node_.queues[tenant].victims;
  for (std::size_t i = victims.size(); i-- > 0;) {
    CacheEntry& victim = *victims[i];
    if (victim.has(CacheEntry::kUncounted)) continue;
    if (!victim.droppable(false) || victim.visited || node_.keeps(victim)) {
      space_.spare(victim);
      continue;
    }
    const bool similar = length_ <= victim.length && length_ > victim.length / 2;
    if (replace(victim) || (similar && take_row_of(victim, rows))) {
      if (passes_) node_.passed += length_;
      return true;
    }
    passed_enough_ =
        !passes_ && node_.passed >= kPasses * std::max(length_, std::uint64_t{victim.length});
    if (passed_enough_) break;
    passes_ = true;
  }
  return false;
}

// Evicts the row of the tenant's first victim that has one.
bool SpaceSearch::evict_victim(std::uint32_t tenant) {
  Rows rows{*this};
  const std::vector<CacheEntry*>& victims = node_.queues[tenant].victims;
  for (std::size_t i = victims.size(); i-- > 0;) {
    // A victim whose row does not suffice stays for a smaller block.
    if (!take_row_of(*victims[i], rows)) continue;
    node_.passed = 0;
    return true;
  }
  return false;
}

bool SpaceSearch::take_row_of(CacheEntry& victim, Rows& rows) {
  if (!rows.from(victim) || !shard_.hits.may_go(space_.row_.frames, rows.planned_too)) return false;
  take_row();
  return true;
}

// The usual case: a block takes the place of one of its size.
bool SpaceSearch::replace(CacheEntry& victim) {
  if (!node_.frames.replaceable(victim, length_, request_.extent.offset)) return false;
  shard_.hits.count_pins(victim);
  if (!victim.droppable(false)) return false;
  node_.discount(victim);
  node_.frames.replace(victim, entry_, length_, request_.extent.offset);
  node_.count(entry_);
  shard_.blocks.drop(victim, CacheEvent::Kind::evicted);
  return true;
}

void SpaceSearch::take_row() {
  for (Frame* frame : space_.row_.frames) {
    shard_.blocks.drop(entry_of(*frame), CacheEvent::Kind::evicted);
  }
  node_.frames.take_row(entry_, space_.row_, length_, request_.extent.offset);
  node_.count(entry_);
}

// Evicts a row in a slab whose blocks can all be dropped, if one has space for the block. It finds
// rows that a search of bounded effort among the pins of other slabs missed.
bool SpaceSearch::evict_in_slab(bool planned_too) {
  if (node_.frames.capacity() > node_.budget) return false;
  const auto may = droppable(planned_too);
  for (const Frames::Slab& slab : node_.frames.slabs()) {
    if (slab.lowest == nullptr || slab.size < length_) continue;
    if (node_.frames.blocker(slab, may) != nullptr) continue;
    if (!node_.frames.find_row(*slab.lowest, length_, request_.extent.offset, may, space_.row_)) {
      continue;  // too small for its alignment
    }
    if (node_.keeps(space_.row_.frames) || !shard_.hits.may_go(space_.row_.frames, planned_too))
      continue;
    take_row();
    return true;
  }
  return false;
}

// The last resort of an access: blocks that plans fetched for their furthest uses. Their items are
// pending again and are fetched once more when there is space.
bool SpaceSearch::sacrifice() {
  if (node_.frames.capacity() > node_.budget) return false;
  Rows rows{*this, true};
  unsigned looks = Space::kFrameEffort;
  for (PrefetchPlan* plan : shard_.plans.paused_first()) {
    unsigned left = Space::kEffort;
    for (std::size_t i = plan->furthest_started(); i-- > plan->oldest && left > 0 && looks > 0;) {
      --looks;
      CacheEntry* const planned = plan->items[i].entry;
      if (planned == nullptr || planned->node != request_.node) continue;
      --left;
      if (take_row_of(*planned, rows)) return true;
    }
    if (left == 0 || looks == 0 || rows.effort == 0) node_.search.bounded = true;
  }
  return false;
}

// Releases slabs, the emptiest first, until the budget has space for a slab for the block. Does
// nothing if too few can be dropped, or if one has the size already: a new one would be no better.
bool SpaceSearch::free_slabs(bool planned_too) {
  // If a slot pins a block of the chosen slabs, the next choice knows it.
  for (unsigned tries = Space::kEffort; tries > 0; --tries) {
    const auto chosen = slabs_to_free(planned_too);
    if (chosen.empty()) return false;
    const std::vector<Frame*> frames = Space::frames_of(node_.frames, chosen);
    if (node_.keeps(frames)) return false;
    if (!shard_.hits.may_go(frames, planned_too)) continue;
    for (const std::byte* begin : chosen) space_.free_slab(node_, begin);
    return true;
  }
  node_.search.bounded = true;
  return false;
}

// Empty: it would not help.
std::vector<std::byte*> SpaceSearch::slabs_to_free(bool planned_too) const {
  const std::uint64_t space = std::min(Space::slab_for(request_.extent), node_.budget);
  if (space_.growing_is_paused(node_) || space / Frames::kGranule * Frames::kGranule < length_) {
    return {};  // released in vain
  }
  std::vector<const Frames::Slab*> slabs;
  for (const Frames::Slab& slab : node_.frames.slabs()) {
    if (node_.frames.blocker(slab, droppable(planned_too)) != nullptr) continue;
    if (slab.size >= length_) return {};
    slabs.push_back(&slab);
  }
  std::ranges::sort(slabs, {}, &Frames::Slab::used);
  std::uint64_t taken = node_.frames.capacity() + node_.growing;
  std::vector<std::byte*> chosen;
  for (const Frames::Slab* slab : slabs) {
    if (taken + space <= node_.budget) break;
    taken -= slab->capacity;
    chosen.push_back(slab->begin);
  }
  if (taken + space > node_.budget) return {};
  return chosen;
}

}  // namespace headrace
