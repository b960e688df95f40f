// SPDX-License-Identifier: Apache-2.0
// The shards of a cache: each is a CacheCore with a lock, an index, an eviction order and an equal
// part of each budget.
//
// The first byte of an extent says where it belongs: an object is cut into stretches, which go to
// the shards in turn. A block that goes on into the next stretch is found by accesses that begin
// there all the same: they look into the shards of the stretches before. A cache without such
// blocks pays for that one load.
//
// A plan is cut into one part for each shard. A consumer comes to a shard only in its turn, so a
// part sees its share of the pace and fetches its share of the window.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/core.h"
#include "headrace/cache.h"

namespace headrace {

class CacheShards {
 public:
  static constexpr std::size_t kMost = 256;

  static Result<std::unique_ptr<CacheShards>> create(Mover& mover, CacheOptions options);

  // The number that CacheOptions::shards = 0 stands for, with that many CPUs.
  static std::size_t automatic(const CacheOptions& options, std::size_t cpus);

  // Null: there are several.
  CacheCore* only() const { return mask_ == 0 ? cores_[0].get() : nullptr; }
  // Whether this process made it, not its parent.
  bool here() const { return cores_[0]->origin().here(); }

  // In hits.cpp, where hits are inlined into them.
  Block access(const Extent& extent, const AccessOptions& options);
  void access(std::span<const Extent> extents, std::span<Block> blocks,
              const AccessOptions& options);
  Prefetch prefetch(std::span<const Extent> extents, const PrefetchOptions& options);
  void invalidate(const Extent& extent);
  Status forget(const Object& object, Nanoseconds timeout);
  std::vector<ObjectId> reading() const;
  void flush();
  void clear();
  Status resize(NodeId node, Bytes budget);
  CacheStats stats() const;

 private:
  CacheShards(Mover& mover, const CacheOptions& options, std::size_t shards);

  std::size_t number_of(ObjectId object, std::uint64_t offset) const {
    // Objects begin in different shards (Fibonacci hashing, as the index).
    const std::uint64_t first = raw(object) * 0x9e3779b97f4a7c15 >> 32;
    return static_cast<std::size_t>(first + (offset >> shift_)) & mask_;
  }
  // Requires: the extent has an object.
  std::size_t number_of(const Extent& extent) const {
    return number_of(extent.object->id(), extent.offset);
  }
  CacheCore& of(const Extent& extent) const {
    return *cores_[extent.object == nullptr ? 0 : number_of(extent)];
  }
  bool goes_on(const Extent& extent) const {
    return ((extent.offset ^ (extent.offset + extent.length.value - 1)) >> shift_) != 0;
  }
  void note(const Extent& extent);
  [[gnu::noinline]] Block access_across(const Extent& extent, const AccessOptions& options);
  bool find_before(const Extent& extent, const AccessOptions& options, Block& block) const;
  Bytes share(Bytes budget, std::size_t number) const;

  Mover& mover_;
  std::vector<std::unique_ptr<CacheCore>> cores_;  // a power of two
  std::size_t mask_ = 0;
  unsigned shift_ = 0;  // log2 of a stretch
  // The longest extent so far that goes on into another stretch; 0: none does.
  std::atomic<std::uint64_t> longest_{0};
};

}  // namespace headrace
