// SPDX-License-Identifier: Apache-2.0
// oneTBB's concurrent_hash_map with an order of its own, since it has none: first in, first out,
// passing over pinned blocks. Pins are shared_ptr, copied while the map's accessor holds the
// element.
//
// A miss reads without a lock: if two threads miss the same block, both read and one copy is kept.
#pragma once

#include <oneapi/tbb/concurrent_hash_map.h>
#include <oneapi/tbb/concurrent_queue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "benchmarks/cache/stores/store.h"
#include "headrace/units.h"

namespace headrace::cache_bench {

class TbbStore {
 public:
  using Pin = HeldPin;

  static Result<std::unique_ptr<TbbStore>> make(const Source& source, Bytes budget) {
    return std::make_unique<TbbStore>(source, budget);
  }
  TbbStore(const Source& source, Bytes budget) : source_(source), budget_(budget.value) {}

  Pin access(std::uint64_t block) {
    Map::const_accessor found;
    if (map_.find(found, block)) return {found->second, true};
    return miss(block);
  }
  std::uint64_t misses() const { return misses_.load(); }

 private:
  using Map = tbb::concurrent_hash_map<std::uint64_t, Held>;

  Pin miss(std::uint64_t block) {
    misses_.fetch_add(1);
    const std::uint64_t length = source_.place(block).length;
    used_.fetch_add(length);
    if (!make_room()) {
      used_.fetch_sub(length);
      return {uncached(source_, block), false};
    }
    Held bytes = read_copy(source_, block);
    if (bytes == nullptr) {
      used_.fetch_sub(length);
      return {};
    }
    Map::accessor made;
    if (!map_.insert(made, block)) {
      used_.fetch_sub(length);
      return {made->second, false};
    }
    made->second = bytes;
    made.release();
    order_.push(block);
    return {std::move(bytes), false};
  }

  bool make_room() {
    for (unsigned looked = 0; used_.load() > budget_; ++looked) {
      std::uint64_t victim = 0;
      if (looked == kVictims || !order_.try_pop(victim)) return false;
      Map::accessor entry;
      if (!map_.find(entry, victim)) continue;
      if (entry->second.use_count() > 1) {
        entry.release();
        order_.push(victim);
        continue;
      }
      map_.erase(entry);
      used_.fetch_sub(source_.place(victim).length);
    }
    return true;
  }

  const Source& source_;
  const std::uint64_t budget_;
  Map map_;
  tbb::concurrent_queue<std::uint64_t> order_;  // the first in first
  std::atomic<std::uint64_t> used_ = 0;         // bytes of entries, and of blocks being read
  std::atomic<std::uint64_t> misses_ = 0;
};

static_assert(Store<TbbStore>);

}  // namespace headrace::cache_bench
