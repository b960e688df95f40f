// SPDX-License-Identifier: Apache-2.0
// Where the pipeline of a query gets its blocks from: a block is one column of one chunk (scan.h).
// The modes of a query (QueryMode) differ in their source and in nothing else.
//
// Thread-safe, as long as each worker thread passes a number of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "headrace/buffer.h"
#include "headrace/cache.h"
#include "headrace/mover.h"
#include "workload/query/scan.h"

namespace headrace {

class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // Waits for a block and returns its bytes, good until finish(worker).
  virtual Result<std::span<const std::byte>> get(unsigned worker, std::size_t column,
                                                 std::uint64_t chunk) = 0;
  // The worker is done with all blocks it got. io: a mapped file could not be read to its
  // end, so some of the bytes it got were not the file's.
  virtual Status finish(unsigned worker) = 0;
  // No worker will call get() again: all blocks were read, or a worker failed.
  virtual void end() {}
};

// What one run of a query uses: its own, but for the Mover, which outlives it.
struct SourceContext {
  SourceContext(QueryScan query_scan, QueryOptions query_options, Mover& copier)
      : scan(std::move(query_scan)), options(std::move(query_options)), mover(copier) {}

  const QueryScan scan;
  const QueryOptions options;
  Mover& mover;
  std::atomic<bool> stop{false};              // the run is to end: cancelled, or a worker failed
  std::atomic<std::uint64_t> blocks_read{0};  // so far
};

// Reads whole columns in memory, in place.
std::unique_ptr<BlockSource> memory_source(const SourceContext& context,
                                           std::vector<const Object*> columns);

// Copies each block into a buffer of the worker when get() asks for it.
Result<std::unique_ptr<BlockSource>> copying_source(const SourceContext& context);

// Maps the files and reads them in place.
Result<std::unique_ptr<BlockSource>> mapped_source(const SourceContext& context);

// Reads through the cache, which gets the order of all blocks as its plan at once. `objects` hold
// the columns.
std::unique_ptr<BlockSource> cached_source(const SourceContext& context, Cache& cache,
                                           std::vector<const Object*> objects);

using ColumnBuffers = std::vector<std::unique_ptr<Buffer>>;

// Loads the columns of the scan into memory on `node`. cancelled: as wait_for().
Result<ColumnBuffers> load_columns(const SourceContext& context, NodeId node);

// Waits until a transfer has ended, however long that takes: its destination may be freed then.
// cancelled: context.stop was set, and the transfer was cancelled.
Status wait_for(const Transfer& transfer, const SourceContext& context);
// Empties the cache, and waits, however long that takes, until no engine reads the objects any
// more.
void quiesce(Cache& cache, std::span<const Object* const> objects);

// The error, with the name of the object's file in its message.
Error name_file(Error error, const Object& object, const QueryScan& scan);

}  // namespace headrace
