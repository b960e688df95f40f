// SPDX-License-Identifier: Apache-2.0
#include "cache/space.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cache/blocks.h"
#include "core/fail.h"

namespace headrace {
namespace {

// Victims are at most this share of all blocks.
constexpr std::size_t kVictimShare = 16;
// After the kernel refused a slab, misses do not ask again for this time.
constexpr Nanoseconds kGrowPause = std::chrono::seconds{1};

// Slabs that calls on this thread's stack have reserved and not yet allocated.
thread_local constinit std::size_t slabs_owed = 0;

}  // namespace

std::uint64_t Space::slab_for(const Extent& extent) {
  return (Frames::slab_bytes(extent.length.value, extent.offset) + kPage - 1) / kPage * kPage;
}

std::vector<Frame*> Space::frames_of(const Frames& frames, std::span<std::byte* const> slabs) {
  std::vector<Frame*> found;
  for (const Frames::Slab& slab : frames.slabs()) {
    if (std::ranges::find(slabs, slab.begin) == slabs.end()) continue;
    for (Frame* frame = slab.lowest; frame != nullptr; frame = frame->above) found.push_back(frame);
  }
  return found;
}

Space::Space(const Shard& shard) : shard_(shard) {
  for (const auto& [id, budget] : shard.options.budgets) {
    const bool on_gpu = !shard.mover.machine().find(id)->byte_addressable();
    nodes_.push_back(
        {.id = id,
         .budget = budget.value,
         .frames = Frames(!on_gpu),
         .on_gpu = on_gpu,
         .top = shard.options.chain.empty() || nodes_.empty(),
         .last = shard.options.chain.empty() || nodes_.size() == shard.options.chain.size()});
    Node& node = nodes_.back();
    node.queues.resize(shard.options.tenants.size() + 1);
    for (Queue& queue : node.queues) {
      queue.order = shard.options.eviction();
      queue.victims.reserve(kVictims);
    }
    if (node.queues.size() > 1) node.tenants = std::make_unique<TenantShares>(shard.options);
    if (!node.queues[0].order->marks()) shard.hits.close();
  }
  if (shard.options.observer) shard.hits.close();
}

std::optional<std::uint16_t> Space::number_of(NodeId id) const {
  const auto at = std::ranges::find(nodes_, id, &Node::id);
  if (at == nodes_.end()) return std::nullopt;
  return static_cast<std::uint16_t>(at - nodes_.begin());
}

std::vector<CacheStats::Tenant> Space::tenants(const Hits::ByTenant& pinned) const {
  std::vector<CacheStats::Tenant> all;
  if (shard_.options.tenants.empty()) return all;
  all.resize(shard_.options.tenants.size() + 1);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bytes_pinned = Bytes{pinned[i]};
  for (const Node& node : nodes_) node.tenants->add_to(all);
  return all;
}

void Space::give_frame(CacheEntry& entry) {
  if (entry.data == nullptr) return;
  Node& node = nodes_[entry.node];
  node.discount(entry);
  node.frames.give(entry);
}

bool Space::stall() {
  if (std::exchange(stalled_, true)) return false;
  shard_.hits.readers.ask_all(true);
  shard_.plans.pump_again();
  shard_.signals.space_changes.fetch_add(1);
  return true;
}

void Space::released() {
  ++let_go_;
  if (!std::exchange(stalled_, false)) return;
  shard_.hits.readers.ask_all(false);
  shard_.signals.pump_due = true;
  shard_.signals.space_changes.fetch_add(1);
  shard_.deferred.wake_for_space();
}

// Adds the tenant's next blocks in the order to its victims, up to a small share of all. Victims
// chosen before stay first. False: there are no more.
bool Space::pick_victims(Node& node, std::uint32_t tenant) {
  Queue& queue = node.queues[tenant];
  std::vector<CacheEntry*>& victims = queue.victims;
  const std::size_t most = most_victims(queue);
  if (victims.size() >= most) return false;
  const std::size_t wanted = most - victims.size();
  const auto before = static_cast<std::ptrdiff_t>(victims.size());
  const auto accept = [&](EvictionLinks& links) {
    auto& entry = static_cast<CacheEntry&>(links);
    if (entry.dirty != 0) shard_.blocks.make_due(entry, true);
    if (entry.chosen != 0 || !entry.droppable(false)) return false;
    if (node.keeps(entry)) return false;
    victims.push_back(&entry);
    entry.chosen = 1;
    return victims.size() >= most;
  };
  // An order with several queues spends a part of the effort on each (s3_fifo() a quarter). This is
  // enough for the queue whose turn it is to give all victims. Less if most blocks are pinned.
  shard_.candidates.choose(node, tenant, accept, queue.scarce ? 2 * kVictims : 8 * kVictims);
  queue.scarce = 2 * (victims.size() - static_cast<std::size_t>(before)) < wanted;
  std::ranges::reverse(victims);
  std::reverse(victims.end() - before, victims.end());
  return std::cmp_greater(victims.size(), before);
}

// If hits are closed, no slot holds a pin, so there is no fence to share.
std::size_t Space::most_victims(const Queue& queue) const {
  const std::size_t most = std::min(kVictims, queue.blocks / kVictimShare);
  return most < 2 || !shard_.hits.open() ? 0 : most;
}

bool Space::choose_victims(Node& node, std::uint32_t tenant) {
  Queue& queue = node.queues[tenant];
  if (queue.pause > 0) {
    --queue.pause;
    return false;
  }
  if (!pick_victims(node, tenant)) {
    const bool vain = queue.victims.empty() && most_victims(queue) > 0;
    if (vain && node.tenants != nullptr) queue.pause = kPause;
    return false;
  }
  shard_.hits.count_pins(queue.victims);
  for (CacheEntry* victim : queue.victims) victim->word.fetch_or(CacheEntry::kVictim);
  return true;
}

bool Space::choose_victims_ahead(Node& node) {
  if (!node.last || node.counting) return false;
  const auto is_low = [&](const Queue& queue) {
    return !queue.scarce && !queue.victims.empty() &&
           queue.victims.size() < most_victims(queue) / 4;
  };
  if (std::ranges::none_of(node.queues, is_low)) return false;  // turns() costs more
  const TenantTurns turns = node.turns();
  if (turns.count == 0) return false;
  const std::uint32_t tenant = *turns.begin();
  const Queue& queue = node.queues[tenant];
  if (!is_low(queue) || !pick_victims(node, tenant)) return false;
  for (CacheEntry* victim : queue.victims) {
    if (!victim->has(CacheEntry::kCounted)) {
      victim->word.fetch_or(CacheEntry::kCounted | CacheEntry::kUncounted);
    }
  }
  node.counting = true;
  return true;
}

void Space::count_victims(Node& node) {
  shard_.hits.count_pins_of(CacheEntry::kUncounted);
  for (const Queue& queue : node.queues) {
    for (CacheEntry* victim : queue.victims) {
      if (!victim->has(CacheEntry::kUncounted)) continue;
      victim->word.fetch_xor(CacheEntry::kUncounted | CacheEntry::kVictim);
    }
  }
  node.counting = false;
}

void Space::offer(CacheEntry& entry) {
  Node& node = nodes_[entry.node];
  if (!node.last || entry.chosen != 0 || entry.detached != 0 || !entry.droppable(false) ||
      entry.visited)
    return;
  std::vector<CacheEntry*>& victims = node.queue_of(entry).victims;
  if (victims.size() == kVictims) return;
  entry.chosen = 1;
  victims.push_back(&entry);
}

void Space::spare(CacheEntry& entry) {
  if (entry.chosen == 0) return;
  entry.chosen = 0;
  auto& victims = nodes_[entry.node].queue_of(entry).victims;
  // Usually the last.
  const auto at = std::ranges::find(victims.rbegin(), victims.rend(), &entry);
  victims.erase(std::prev(at.base()));
}

// Visits blocks that plans protect, which are in no order, until `take` returns true.
void Space::visit_planned(const Node& node, const std::function<bool(CacheEntry&)>& take) {
  unsigned looks = kFrameEffort;
  for (const Frames::Slab& slab : node.frames.slabs()) {
    for (Frame* frame = slab.lowest; frame != nullptr; frame = frame->above) {
      CacheEntry& entry = entry_of(*frame);
      if (looks-- == 0 || (entry.planned > 0 && take(entry))) return;
    }
  }
}

bool Space::fit_budget(Node& node) {
  if (free_surplus_slab(node)) return true;
  if (node.used <= node.budget) return false;
  if (node.tenants != nullptr) node.tenants->ask_for_none(node.budget);
  std::vector<CacheEntry*> blocks;
  const auto take = [&](CacheEntry& entry) {
    if (entry.droppable(true)) blocks.push_back(&entry);
    return blocks.size() == PrefetchPlan::kSlice;
  };
  shard_.candidates.choose(
      node, [&](EvictionLinks& links) { return take(static_cast<CacheEntry&>(links)); },
      kFrameEffort);
  if (drop_until_fit(node, blocks)) return true;
  blocks.clear();
  visit_planned(node, take);
  return drop_until_fit(node, blocks);
}

// False: slots pin all of these blocks.
bool Space::drop_until_fit(Node& node, std::span<CacheEntry* const> blocks) {
  shard_.hits.count_pins(blocks);
  bool any = false;
  for (CacheEntry* block : blocks) {
    if (node.used <= node.budget) break;
    if (!block->droppable(true)) continue;
    shard_.blocks.drop(*block, CacheEvent::Kind::evicted);
    any = true;
  }
  return any;
}

void Space::fit_budget_by(std::size_t number, CacheEntry* freed) {
  Node& node = nodes_[number];
  if (node.frames.capacity() <= node.budget) return;
  try {
    if (node.used > node.budget && freed != nullptr) {
      shard_.hits.count_pins(*freed);
      if (freed->droppable(true)) shard_.blocks.drop(*freed, CacheEvent::Kind::evicted);
    }
    free_surplus_slab(node);
  } catch (const std::bad_alloc&) {
    // The next release tries again.
  }
}

// Releases the emptiest slab without pins and copies in flight. Only whole slabs help: a block
// dropped from a slab that stays would be fetched again by its plan, and dropped, for ever.
bool Space::free_surplus_slab(Node& node) {
  // Again if a slot turns out to pin a block of the chosen slab.
  for (unsigned tries = kEffort; tries > 0; --tries) {
    std::byte* const chosen = surplus_slab(node);
    if (chosen == nullptr) return false;
    if (!shard_.hits.may_go(frames_of(node.frames, {&chosen, 1}), true)) continue;
    free_slab(node, chosen);
    return true;
  }
  return false;
}

std::byte* Space::surplus_slab(const Node& node) const {
  if (node.frames.capacity() <= node.budget) return nullptr;
  const Frames::Slab* emptiest = nullptr;
  for (const Frames::Slab& slab : node.frames.slabs()) {
    if (emptiest != nullptr && slab.used >= emptiest->used) continue;
    if (node.frames.blocker(slab, droppable(true)) == nullptr) emptiest = &slab;
  }
  return emptiest == nullptr ? nullptr : emptiest->begin;
}

bool Space::growing_is_paused(const Node& node) const {
  return node.grow_error && shard_.mover.clock().now() < node.grow_again;
}

std::optional<Growth> Space::growth(const SpaceRequest& request) {
  Node& node = nodes_[request.node];
  const std::uint64_t taken = node.frames.capacity() + node.growing;
  if (taken >= node.budget) return std::nullopt;
  if (growing_is_paused(node)) return std::nullopt;
  const std::uint64_t wanted = std::max(
      {shard_.options.slab.value, Frames::slab_share(node.budget), slab_for(request.extent)});
  const std::uint64_t bytes = std::min(wanted, node.budget - taken);
  if (bytes / Frames::kGranule * Frames::kGranule < request.extent.length.value) {
    return std::nullopt;
  }
  node.growing += bytes;
  ++slabs_owed;
  return Growth{.node = request.node, .bytes = bytes};
}

void Space::cancel(const Growth& growth) {
  nodes_[growth.node].growing -= growth.bytes;
  --slabs_owed;
}

bool Space::owes_slab() { return slabs_owed > 0; }

bool Space::grown(const Growth& growth, Result<std::shared_ptr<const Object>> slab,
                  std::uint64_t unmapped) {
  Node& node = nodes_[growth.node];
  cancel(growth);
  Status added;
  if (slab) {
    added = add_slab(node, *std::move(slab), growth.bytes);
  } else {
    added = Unexpected(std::move(slab).error());
  }
  bool again = false;
  if (node.lost) {
    // `grow_error` keeps the loss of the GPU.
  } else if (added) {
    node.grow_error.reset();
  } else if (again = unmapping_ > 0; !again && unmapped == unmapped_) {
    ++shard_.blocks.counts.slab_failures;
    node.grow_error = std::move(added).error();
    node.grow_again = shard_.mover.clock().now() + kGrowPause;
  }
  released();
  return again;
}

// If the budget has shrunk meanwhile, the slab is released again, and little else.
Status Space::add_slab(Node& node, std::shared_ptr<const Object> slab, std::uint64_t bytes) {
  try {
    // The address of a slab on a GPU is a number, which is not dereferenced here.
    std::byte* const begin = slab->device_address()
                                 ? reinterpret_cast<std::byte*>(*slab->device_address())  // NOLINT
                                 : slab->memory();
    node.frames.add({begin, bytes}, std::move(slab));
    while (fit_budget(node)) {
    }
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  return {};
}

// Releases a slab and drops its blocks. Requires: all of them can be dropped.
void Space::free_slab(Node& node, const std::byte* begin) {
  shard_.deferred.may_free();
  const auto slab = std::ranges::find(node.frames.slabs(), begin, &Frames::Slab::begin);
  while (slab->lowest != nullptr) {
    shard_.blocks.drop(entry_of(*slab->lowest), CacheEvent::Kind::evicted);
  }
  shard_.deferred.free(node.frames.remove(begin));
  ++unmapping_;
}

void Space::free_empty_slabs() {
  for (Node& node : nodes_) {
    std::vector<const std::byte*> empty;
    for (const Frames::Slab& slab : node.frames.slabs()) {
      if (slab.lowest == nullptr) empty.push_back(slab.begin);
    }
    for (const std::byte* begin : empty) free_slab(node, begin);
  }
}

void Space::count_unmapped(std::size_t slabs) {
  unmapping_ -= slabs;
  unmapped_ += slabs;
  shard_.signals.space_changes.fetch_add(1);
}

}  // namespace headrace
