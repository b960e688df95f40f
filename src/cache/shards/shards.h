// SPDX-License-Identifier: Apache-2.0
// The shards of a cache: each is a CacheCore with a lock, an index, an eviction order and an equal
// part of each budget.
//
// An object is cut into stretches. Neighbouring stretches belong to different shards. The first
// byte of an extent decides its shard. A block may continue into later stretches. Accesses that
// begin there find it too: they look into the shards of earlier stretches. Caches without such
// blocks pay one load for this.
//
// A plan is cut into one part per shard. A consumer comes to the shards one after the other, so a
// part sees its share of the pace and fetches its share of the window.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/accounts/curve.h"
#include "cache/accounts/owners.h"
#include "cache/accounts/tenants.h"
#include "cache/core.h"
#include "cache/shards/stretches.h"
#include "cache/shards/syncs.h"
#include "cache/structures/chunks.h"
#include "headrace/cache.h"

namespace headrace {

class CacheShards {
 public:
  static constexpr std::size_t kMost = 256;

  static Result<std::unique_ptr<CacheShards>> create(Mover& mover, CacheOptions options);
  ~CacheShards();

  // The number of shards that CacheOptions::shards = 0 gives with that many CPUs.
  static std::size_t automatic(const CacheOptions& options, std::size_t cpus);

  // Null: there are several, or accesses are counted.
  CacheCore* only() const {
    return cores_.size() == 1 && counts_ == nullptr ? cores_[0].get() : nullptr;
  }
  // Whether this process made it. False in a child of fork().
  bool here() const { return cores_[0]->origin().here(); }

  // Defined in access.cpp, where hits are inlined into them.
  Block access(const Extent& extent, const AccessOptions& options);
  void access(std::span<const Extent> extents, std::span<Block> blocks,
              const AccessOptions& options);
  Status read(const Extent& from, std::span<std::byte> to, const ReadOptions& options);
  Prefetch prefetch(std::span<const Extent> extents, const PrefetchOptions& options);
  Prefetch prefetch(const Strided& extents, const PrefetchOptions& options);
  bool invalidate(const Extent& extent);
  Status discard(const Extent& extent, Nanoseconds timeout);
  Status write_back(const WriteBackOptions& options);
  Status write_back(const WriteBackOptions& options, Patience& patience);
  Status sync(const WriteBackOptions& options);
  Status forget(const Object& object, Nanoseconds timeout);
  std::vector<ObjectId> reading() const;
  void flush();
  void clear();
  Status resize(NodeId node, Bytes budget);
  CacheStats stats() const;
  Result<TenantId> tenant(std::string_view name) const;
  Status set_tenant(const Object& object, TenantId tenant);
  Result<std::vector<CacheCurvePoint>> miss_ratio_curve() const;

 private:
  friend class CacheExplainer;
  CacheShards(Mover& mover, const CacheOptions& options, std::size_t shards);

  CacheCore& of(const Extent& extent) const {
    return *cores_[extent.object == nullptr ? 0 : stretches_.shard_of(extent)];
  }
  // Calls visit(core) once for each shard of these stretches until it returns true, and returns
  // that.
  template <class Visit>
  bool any_shard(ObjectId object, std::uint64_t first, std::uint64_t last,
                 const Visit& visit) const {
    std::bitset<kMost> seen;
    // A group of neighbours lies wholly in twice as many stretches.
    for (std::uint64_t stretch = first; stretch <= last && stretch - first <= 2 * stretches_.mask();
         ++stretch) {
      const std::size_t number = stretches_.shard_of(object, stretches_.begin(stretch));
      if (seen.test(number)) continue;
      seen.set(number);
      if (visit(*cores_[number])) return true;
    }
    return false;
  }
  // Whether the cache may hold newer bytes than the source. Requires: it has an object.
  bool may_change(const Extent& extent) const {
    return writable_ && extent.object->user_source() == nullptr;
  }
  // The extent whose block a miss makes, if there is space.
  Extent to_fetch(const Extent& extent) const;
  // The shard of that block.
  std::size_t shard_for(const Extent& extent) const {
    return extent.object == nullptr ? 0 : stretches_.shard_of(to_fetch(extent));
  }
  void note(const Extent& extent);
  Block access_counted(const Extent& extent, const AccessOptions& options);
  Block access_charged(const Extent& extent, const AccessOptions& options, bool in_one);
  void use_elsewhere(const CacheCore& own, const Extent& extent, const AccessOptions& options);
  void count(TenantId tenant, const Block& block);
  void note_length(Bytes length);
  PrefetchOptions of_shard(PrefetchOptions options) const;
  std::uint64_t count_valid(const Strided& extents);
  void access_across(const Extent& extent, Block& block, const AccessOptions& options,
                     Started& all);
  bool find_before(const Extent& extent, const AccessOptions& options, Block& block) const;

  Mover& mover_;
  const bool reserve_checked_;  // growth is compared with the free memory
  const bool writable_;
  const std::vector<CacheTenant> tenants_;
  Accounts accounts_;
  Mutex resizing_;                                 // so that all shards get one budget
  std::vector<std::unique_ptr<CacheCore>> cores_;  // a power of two
  Syncs syncs_;                                    // of files that were written
  // Null: there are no tenants, and no curve is wanted.
  std::unique_ptr<TenantCounts> counts_;
  std::unique_ptr<ReuseSample> reuse_;      // null: no curve is wanted
  std::atomic<std::uint64_t> uncurved_{0};  // accesses that the sample could not see
  Stretches stretches_;
  // The longest extent so far that continues into another stretch; 0: none does, and accesses are
  // not counted; kCounted: none does.
  static constexpr std::uint64_t kCounted = 1;
  std::atomic<std::uint64_t> longest_{0};
  std::atomic<std::uint64_t> largest_{0};  // no block is longer: the largest share so far
};

// Cache::explain(), in explain.cpp.
Result<CacheExplanation> explain(const CacheShards& shards, const Extent& extent,
                                 std::optional<NodeId> initiator);

}  // namespace headrace
