// SPDX-License-Identifier: Apache-2.0
// The usual cache of a program that keeps its own blocks: unordered_map in 64 shards, each with a
// mutex, a list in LRU order and a part of the budget. Pins are shared_ptr.
//
// A miss reads without the lock: if two threads miss the same block, both read and one copy is
// kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "benchmarks/cache/stores/store.h"
#include "headrace/units.h"

namespace headrace::cache_bench {

class ShardedStore {
 public:
  using Pin = HeldPin;

  static Result<std::unique_ptr<ShardedStore>> make(const Source& source, Bytes budget) {
    return std::make_unique<ShardedStore>(source, budget);
  }
  ShardedStore(const Source& source, Bytes budget)
      : source_(source), share_(budget.value / kShards), shards_(kShards) {}

  Pin access(std::uint64_t block) {
    Shard& shard = shard_of(block);
    {
      const std::lock_guard lock(shard.mutex);
      if (const auto found = shard.entries.find(block); found != shard.entries.end()) {
        shard.order.splice(shard.order.begin(), shard.order, found->second.place);
        return {found->second.bytes, true};
      }
    }
    return miss(shard, block);
  }
  std::uint64_t misses() const { return misses_.load(); }

 private:
  static constexpr std::size_t kShards = 64;

  struct Entry {
    Held bytes;
    std::list<std::uint64_t>::iterator place;
  };
  struct alignas(64) Shard {  // so that two shards share no line
    std::mutex mutex;
    std::unordered_map<std::uint64_t, Entry> entries;
    std::list<std::uint64_t> order;  // the last used first
    std::uint64_t used = 0;          // bytes of entries, and of blocks being read
  };

  Shard& shard_of(std::uint64_t block) { return shards_[block * 0x9E37'79B9'7F4A'7C15 >> 58]; }

  Pin miss(Shard& shard, std::uint64_t block) {
    misses_.fetch_add(1);
    const std::uint64_t length = source_.place(block).length;
    {
      const std::lock_guard lock(shard.mutex);
      if (!make_room(shard, length)) return {uncached(source_, block), false};
      shard.used += length;
    }
    Held bytes = read_copy(source_, block);
    const std::lock_guard lock(shard.mutex);
    if (const auto found = shard.entries.find(block);
        bytes == nullptr || found != shard.entries.end()) {
      shard.used -= length;
      return {bytes == nullptr ? Held{} : found->second.bytes, false};
    }
    shard.order.push_front(block);
    shard.entries.emplace(block, Entry{bytes, shard.order.begin()});
    return {std::move(bytes), false};
  }

  // Requires: the shard's mutex is held.
  bool make_room(Shard& shard, std::uint64_t length) {
    auto victim = shard.order.end();
    for (unsigned looked = 0; shard.used + length > share_; ++looked) {
      if (looked == kVictims || victim == shard.order.begin()) return false;
      --victim;
      const auto entry = shard.entries.find(*victim);
      if (entry->second.bytes.use_count() > 1) continue;  // pinned
      shard.used -= source_.place(*victim).length;
      shard.entries.erase(entry);
      victim = shard.order.erase(victim);
    }
    return true;
  }

  const Source& source_;
  const std::uint64_t share_;
  std::vector<Shard> shards_;
  std::atomic<std::uint64_t> misses_ = 0;
};

static_assert(Store<ShardedStore>);

}  // namespace headrace::cache_bench
