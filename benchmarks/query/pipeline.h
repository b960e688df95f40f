// SPDX-License-Identifier: Apache-2.0
// Threads that take chunks in order and run a query's pipeline over the blocks of a source; and the
// transfer alone. Thread-compatible.
//
// With one stage a thread takes all columns of a chunk. With two, threads of the first take the
// columns that filter, and threads of the second the others; the chunks wait between them in order.
#pragma once

#include <memory>
#include <vector>

#include "benchmarks/query/sources.h"
#include "headrace/units.h"

namespace headrace {

struct PipelineRun {
  std::unique_ptr<Pipeline> result;
  Nanoseconds compute{0};  // sum of all threads
  Nanoseconds waited{0};
  std::vector<BlockTrace> blocks;  // in order of request
};

// Runs the query once with the threads of the options; the calling thread is the first. Times count
// from `start`. The first error of a thread stops all and is returned. Errors: also cancelled: a
// stop was requested through the context.
Result<PipelineRun> run_pipeline(SourceContext& context, BlockSource& source, Nanoseconds start);

// The floor of the query's time: only the transfer of its blocks, with as many in flight as the
// Mover allows. As measure_transfer_floor(), without supervision.
Result<Nanoseconds> run_floor(SourceContext& context);

}  // namespace headrace
