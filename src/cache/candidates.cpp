// SPDX-License-Identifier: Apache-2.0
#include "cache/candidates.h"

#include <algorithm>
#include <optional>

#include "cache/blocks.h"

namespace headrace {
namespace {

// Blocks sorted before each choice.
constexpr std::size_t kSorted = 64;
// Blocks by next use that a choice looks at, those included that are pinned or that their tenants
// keep. A block that is sorted counts as many.
constexpr int kLooks = 16384;
constexpr int kLooksToSort = 16;

// For EvictionBlock::key.
std::uint64_t key_of(const Range& range) {
  std::uint64_t key = hash_secret();
  for (const std::uint64_t part : {raw(range.object), range.offset, range.length}) {
    key = (key ^ part) * 0x9e3779b97f4a7c15;  // as in the index (Fibonacci hashing)
    key ^= key >> 32;
  }
  return key;
}

}  // namespace

Candidates::Candidates(const Shard& shard)
    : shard_(shard),
      tenants_(shard.options.tenants.size() + 1),
      next_uses_(shard.options.budgets.size() * tenants_) {}

void Candidates::enter(CacheEntry& entry, Use use) {
  entry.again = use == Use::again;
  const auto ahead = entry.visited ? std::nullopt : shard_.plans.next_use(entry.range());
  if (ahead) shard_.space.spare(entry);
  if (ahead || use == Use::used_up) return uses_of(entry).insert(entry, ahead);
  const auto of_order = use == Use::again ? EvictionBlock::Use::again : EvictionBlock::Use::fresh;
  shard_.space.node(entry.node)
      .queue_of(entry)
      .order->insert(entry, {.key = key_of(entry.range()), .bytes = entry.length, .use = of_order});
}

void Candidates::leave(CacheEntry& entry, bool evicted) {
  EvictionOrder& order = *shard_.space.node(entry.node).queue_of(entry).order;
  if (entry.by_next_use != 0) {
    uses_of(entry).remove(entry);
  } else if (evicted) {
    order.evict(entry, key_of(entry.range()));
  } else {
    entry.again = order.use_of(entry) == EvictionBlock::Use::again;
    order.remove(entry);
  }
}

void Candidates::sort(CacheEntry& entry) {
  const bool used_up = entry.by_next_use != 0 && NextUses::is_at(entry, std::nullopt);
  leave(entry, false);
  const bool again = entry.visited || entry.again != 0;
  enter(entry, again ? Use::again : used_up || entry.by_prefetch != 0 ? Use::used_up : Use::fresh);
}

void Candidates::sort_again() {
  for (NextUses& uses : next_uses_) uses.sort_again();
}

bool Candidates::sort_some(std::size_t effort) {
  bool sorted = true;
  for (NextUses& uses : next_uses_) sorted = sort_some(uses, effort) && sorted;
  return sorted;
}

bool Candidates::sort_some(NextUses& uses, std::size_t effort) {
  for (; effort > 0; --effort) {
    CacheEntry* const old = uses.next_old();
    if (old == nullptr) return true;
    sort(*old);
  }
  return false;
}

// First blocks that no plan will use any more. Then, while plans have more than half of the budget,
// those with the furthest next uses; otherwise those of the order.
CacheEntry* Candidates::choose(Space::Node& node, std::uint32_t tenant, const Accept& accept,
                               unsigned effort) {
  const std::span<NextUses> all = uses_of(shard_.space.number_of(node));
  NextUses& uses = all[tenant];
  sort_some(uses, kSorted);
  const std::uint64_t half = node.budget / 2;
  std::uint64_t planned = node.planned;
  for (const NextUses& one : all) planned += one.bytes();
  CacheEntry* found = choose_by_next_use(uses, accept, effort, planned > half ? planned - half : 0);
  if (found == nullptr) {
    found = static_cast<CacheEntry*>(node.queues[tenant].order->choose(accept, effort));
  }
  if (found == nullptr) found = choose_by_next_use(uses, accept, effort, node.budget);
  return found;
}

CacheEntry* Candidates::choose(Space::Node& node, const Accept& accept, unsigned effort) {
  for (const std::uint32_t tenant : node.turns()) {
    CacheEntry* const found = choose(node, tenant, accept, effort);
    if (found != nullptr) return found;
  }
  return nullptr;
}

// Offers at most about `most` bytes of blocks with a next use.
CacheEntry* Candidates::choose_by_next_use(NextUses& uses, const Accept& accept, unsigned effort,
                                           std::uint64_t most) {
  int looks = kLooks;
  for (CacheEntry* next = uses.first(); next != nullptr && effort > 0 && looks > 0; --looks) {
    CacheEntry& entry = *next;
    next = uses.after(entry);
    if (entry.pins > 0) {
      uses.put_aside(entry);
      continue;
    }
    const bool droppable = entry.droppable(false);
    if (droppable && entry.chosen == 0) {
      const auto ahead = shard_.plans.next_use(entry.range());
      if (entry.visited || !NextUses::is_at(entry, ahead)) {
        sort(entry);
        looks -= kLooksToSort;
        continue;
      }
    }
    if (!NextUses::is_at(entry, std::nullopt) && most == 0) break;
    --effort;
    if (accept(entry)) return &entry;
    if (droppable) most -= std::min(most, std::uint64_t{entry.length});
  }
  return nullptr;
}

}  // namespace headrace
