// SPDX-License-Identifier: Apache-2.0
// The miss ratio that a cache of any size would have with LRU, from a sample of its accesses
// (SHARDS with a fixed sample size, Waldspurger et al., FAST '15).
//
// Keys are sampled by their hash, so that all accesses to a sampled key are seen. For each of them
// the distance is the bytes of the different sampled keys used since its last access, divided by
// the sampled share: LRU with that many bytes would hit. More than kKeys keys lower the share.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/mutex.h"
#include "headrace/cache.h"

namespace headrace {

class ReuseSample {
 public:
  static constexpr std::size_t kKeys = 8192;

  explicit ReuseSample(std::size_t keys = kKeys);

  // Takes the lock only for a sampled key. Throws bad_alloc, and then has counted nothing.
  void access(const Extent& extent) {
    const std::uint64_t hash = hash_of(extent);
    // Pairs with nothing: an old bound only samples too much, which see() refuses.
    if (hash <= bound_.load(std::memory_order_relaxed)) see(hash, extent.length.value);
  }
  // `accesses`: the number of all so far, sampled or not. Empty: none was sampled.
  std::vector<CacheCurvePoint> curve(std::uint64_t accesses) const;

 private:
  struct Key {
    std::size_t turn = 0;  // of its last access
    std::uint64_t bytes = 0;
  };
  // Sizes for each power of two.
  static constexpr unsigned kSteps = 32;

  static std::uint64_t hash_of(const Extent& extent);
  void see(std::uint64_t hash, std::uint64_t bytes);
  void count(double distance) REQUIRES(mutex_);
  void move_to_end(Key& key, std::uint64_t bytes) REQUIRES(mutex_);
  void add(std::size_t turn, std::uint64_t bytes) REQUIRES(mutex_);
  std::uint64_t bytes_until(std::size_t turn) const REQUIRES(mutex_);
  void renumber() REQUIRES(mutex_);
  void drop_largest() REQUIRES(mutex_);
  double share() const;

  const std::size_t most_;
  std::atomic<std::uint64_t> bound_{~std::uint64_t{0}};  // the largest hash that is sampled
  mutable Mutex mutex_;
  std::map<std::uint64_t, Key> keys_ GUARDED_BY(mutex_);  // by hash
  // A Fenwick tree: the bytes of the keys by the turn of their last access.
  std::vector<std::uint64_t> tree_ GUARDED_BY(mutex_);
  std::size_t turns_ GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;  // of all keys
  // Accesses by the logarithm of their distance. Each sampled one stands for 1 / share.
  std::vector<double> counts_ GUARDED_BY(mutex_);
  double all_ GUARDED_BY(mutex_) = 0;  // with first accesses, which have no distance
};

}  // namespace headrace
