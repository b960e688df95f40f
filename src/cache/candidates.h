// SPDX-License-Identifier: Apache-2.0
// The blocks of a shard that no plan protects, in the order of their eviction.
//
// A block is in NextUses if a plan fetched it or will use it, unless it had other uses too. All
// others are in the eviction order of their memory. docs/design/cache/plans.md compares the two.
//
// Guarded by the shard's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/plans/next_uses.h"
#include "cache/space.h"
#include "headrace/eviction.h"

namespace headrace {

class Candidates {
 public:
  explicit Candidates(const Shard& shard);

  // A used_up block is evicted before those of the order.
  enum class Use : std::uint8_t { fresh, again, used_up };
  // Requires: the block is in the index, and no plan protects it.
  void enter(CacheEntry& entry, Use use);
  void leave(CacheEntry& entry, bool evicted);
  // Its next use has changed, or it had another use.
  void sort(CacheEntry& entry);
  // Plans use blocks later, or no more: sort_some() sorts all that have a next use again.
  void sort_again();
  // Sorts at most `effort` blocks of each memory. True: all are sorted.
  bool sort_some(std::size_t effort);
  // The last counted pin of the block is released.
  void unpinned(CacheEntry& entry) {
    if (entry.by_next_use != 0 && NextUses::is_aside(entry)) sort(entry);
  }
  // Offers blocks of a tenant in the order of their eviction until `accept` takes one, or about
  // `effort` were offered of those by next use and of the others. Blocks with counted pins are
  // offered once, not in each call. Null: none was taken.
  using Accept = std::function<bool(EvictionLinks&)>;
  CacheEntry* choose(Space::Node& node, std::uint32_t tenant, const Accept& accept,
                     unsigned effort);
  // The same for each tenant whose turn it is.
  CacheEntry* choose(Space::Node& node, const Accept& accept, unsigned effort);

 private:
  bool sort_some(NextUses& uses, std::size_t effort);
  CacheEntry* choose_by_next_use(NextUses& uses, const Accept& accept, unsigned effort,
                                 std::uint64_t most);
  // The next uses in a memory, one set for each tenant.
  std::span<NextUses> uses_of(std::size_t node) {
    return std::span(next_uses_).subspan(node * tenants_, tenants_);
  }
  NextUses& uses_of(const CacheEntry& entry) { return uses_of(entry.node)[entry.tenant]; }

  const Shard& shard_;
  const std::size_t tenants_;
  std::vector<NextUses> next_uses_;
};

}  // namespace headrace
