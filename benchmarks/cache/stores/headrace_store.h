// SPDX-License-Identifier: Apache-2.0
// Headrace itself. A backend copies sources in memory inside submit(), as the peers copy in the
// accessing thread. The storage backend of this machine reads files.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "benchmarks/cache/stores/store.h"
#include "headrace/backend.h"
#include "headrace/cache.h"
#include "headrace/machine.h"
#include "headrace/mover.h"
#include "headrace/units.h"

namespace headrace::cache_bench {

// The number of shards; 0: automatic.
template <std::size_t kShards>
class HeadraceStoreOf {
 public:
  class Pin {
   public:
    Pin() = default;
    template <class... Options>
    Pin(Cache& cache, const Extent& extent, const Options&... options)
        : block_(cache.access(extent, options...)) {}
    const std::byte* bytes() const { return bytes_of(block_); }
    bool ready() const { return block_.hit(); }

   private:
    Block block_;
  };

  // The store sets the rest of `options`.
  static Result<std::unique_ptr<HeadraceStoreOf>> make(const Source& source, Bytes budget,
                                                       CacheOptions options = {});

  Pin access(std::uint64_t block) { return {*cache_, source_.extent(block)}; }
  Pin access(std::uint64_t block, const Prefetch& plan) {
    return {*cache_, source_.extent(block), AccessOptions{.plan = &plan}};
  }
  std::uint64_t misses() const { return cache_->stats().misses; }
  // Plans the use of all blocks of `source` (this store's or another), from `first` on, in order.
  Prefetch plan(const Source& source, std::uint64_t first, std::uint64_t count);
  Cache& cache() { return *cache_; }
  Mover& mover() { return *mover_; }
  const Source& source() const { return source_; }

  static const std::byte* bytes_of(const Block& block) {
    if (const auto now = block.now()) return now->data();
    const auto bytes = block.wait();
    return bytes ? bytes->data() : nullptr;
  }

 private:
  HeadraceStoreOf(const Source& source, Machine machine, Backends backends)
      : source_(source), machine_(std::move(machine)), backends_(std::move(backends)) {}

  const Source& source_;
  const Machine machine_;
  const Backends backends_;
  std::unique_ptr<Mover> mover_;
  std::unique_ptr<Cache> cache_;
};

using HeadraceStore = HeadraceStoreOf<0>;
using HeadraceStoreIn16 = HeadraceStoreOf<16>;
static_assert(Store<HeadraceStore>);

// All in one call.
template <std::size_t kShards>
class BatchOf<HeadraceStoreOf<kShards>> {
 public:
  void access(HeadraceStoreOf<kShards>& store, std::span<const std::uint32_t, kBatch> blocks) {
    for (std::size_t i = 0; i < kBatch; ++i) extents_[i] = store.source().extent(blocks[i]);
    store.cache().access(extents_, blocks_);
  }
  const std::byte* bytes(std::size_t i) const { return HeadraceStore::bytes_of(blocks_[i]); }
  void release() {
    for (Block& block : blocks_) block = {};
  }

 private:
  std::array<Extent, kBatch> extents_;
  std::array<Block, kBatch> blocks_;
};

}  // namespace headrace::cache_bench
