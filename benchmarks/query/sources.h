// SPDX-License-Identifier: Apache-2.0
// The source of a pipeline's blocks; a block is one column of one chunk (scan.h). The modes of a
// query (QueryMode) differ only in their source.
//
// Thread-safe if no two threads pass the same slot at once. A slot is a chunk in progress
// (QueryOptions::slots()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "benchmarks/query/scan.h"
#include "headrace/buffer.h"
#include "headrace/cache.h"
#include "headrace/mover.h"

namespace headrace {

class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // Waits for a block and returns its bytes, valid until finish(slot).
  virtual Result<std::span<const std::byte>> get(unsigned slot, std::size_t column,
                                                 std::uint64_t chunk) = 0;
  // Releases all blocks of the slot. Errors: io: a mapped file could not be read to its end, so
  // some of the bytes were not the file's.
  virtual Status finish(unsigned slot) = 0;
  // No worker will call get() again: all blocks were read, or a worker failed.
  virtual void end() {}
};

// State that all parts of a run share.
struct RunControl {
  std::atomic<bool> stop{false};              // the run must end: cancelled, or a thread failed
  std::atomic<std::uint64_t> blocks_read{0};  // so far
};

// Resources of one part of a run: its own, except the Mover, which outlives it.
struct SourceContext {
  SourceContext(QueryScan query_scan, QueryOptions query_options, Mover& copier, RunControl& of_run)
      : scan(std::move(query_scan)),
        options(std::move(query_options)),
        mover(copier),
        run(of_run) {}

  const QueryScan scan;
  const QueryOptions options;
  Mover& mover;
  RunControl& run;
};

// Reads whole columns in memory, in place.
std::unique_ptr<BlockSource> memory_source(const SourceContext& context,
                                           std::vector<const Object*> columns);

// Copies each block into a buffer of the slot at get().
Result<std::unique_ptr<BlockSource>> copying_source(const SourceContext& context);

// Maps the files and reads them in place.
Result<std::unique_ptr<BlockSource>> mapped_source(const SourceContext& context);

// Reads through the cache, which gets the order of all blocks as a plan at the start. `objects`
// hold the columns.
std::unique_ptr<BlockSource> cached_source(const SourceContext& context, Cache& cache,
                                           std::vector<const Object*> objects);

using ColumnBuffers = std::vector<std::unique_ptr<Buffer>>;

// Loads the scan's part of its columns into memory on `node`. Errors: also cancelled: as
// wait_for().
Result<ColumnBuffers> load_columns(const SourceContext& context, NodeId node);

// Waits without a bound until a transfer has ended, because its destination may be freed then.
// Errors: also cancelled: the run was stopped, and the transfer was cancelled.
Status wait_for(const Transfer& transfer, const SourceContext& context);
// Empties the cache, and waits without a bound until no engine reads the objects.
void quiesce(Cache& cache, std::span<const Object* const> objects);

// Slabs in which a frame of the largest block is found even if they are cut among shards: a block
// larger than a slab finds no space in a reserved budget, unless it evicts neighbouring slabs.
Bytes slab_for(Bytes block, std::size_t shards);

// Adds the counts of another group's cache. Percentiles stay those of `sum`.
void add(CacheStats& sum, const CacheStats& part);

// The error, with the name of the object's file in its message.
Error name_file(Error error, const Object& object, const QueryScan& scan);

}  // namespace headrace
