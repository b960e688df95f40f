// Where a pipeline gets its blocks from: the difference between the modes, and nothing else.
//
// Thread-safe in this sense: each worker uses its own number, and no two the same at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "headrace/buffer.h"
#include "headrace/cache.h"
#include "headrace/mover.h"
#include "workload/plan.h"

namespace headrace {

class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // The bytes of a block, waiting for them. Good until finish(worker).
  virtual Result<std::span<const std::byte>> get(unsigned worker, std::size_t column,
                                                 std::uint64_t chunk) = 0;
  // The worker is done with all blocks it got. io: what it was given was not the file's.
  virtual Status finish(unsigned worker) = 0;
  // No worker will ask again, because all is read or because one failed.
  virtual void end() {}
};

struct SourceContext {
  const QueryPlan& plan;
  const QueryOptions& options;
  Mover& mover;
  std::function<bool()> stop;  // Thread-safe, unlike the one in the options
};

// Whole columns in memory, read in place.
std::unique_ptr<BlockSource> memory_source(const QueryPlan& plan,
                                           std::vector<const Object*> columns);

// Each block copied into a buffer of the worker when it is asked for.
Result<std::unique_ptr<BlockSource>> copying_source(const SourceContext& context);

// The files mapped.
Result<std::unique_ptr<BlockSource>> mapped_source(const QueryPlan& plan);

// A cache, told the plan when it starts. `objects` hold the columns.
std::unique_ptr<BlockSource> cached_source(const SourceContext& context, Cache& cache,
                                           std::vector<const Object*> objects);

using ColumnBuffers = std::vector<std::unique_ptr<Buffer>>;

// The columns of the plan in memory on `node`. Stops between columns and within one.
Result<ColumnBuffers> load_columns(const SourceContext& context, NodeId node);

// Waits for a transfer into memory that is freed next, so that it must have ended: it is cancelled
// when `stop` says so. What cannot be waited for within the bound is an error.
Status wait_for(const Transfer& transfer, const std::function<bool()>& stop);

// The error with the file's name in it.
Error name_file(Error error, const Object& object, const QueryPlan& plan);

}  // namespace headrace
