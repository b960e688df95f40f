// SPDX-License-Identifier: Apache-2.0
// Workers that take chunks in order and run a query's pipeline over the blocks of a source; and the
// transfer alone.
// Thread-compatible.
#pragma once

#include <vector>

#include "headrace/units.h"
#include "workload/query/sources.h"

namespace headrace {

struct PipelineRun {
  Answer answer;
  Nanoseconds compute{0};  // all workers together
  Nanoseconds waited{0};
  std::vector<BlockTrace> blocks;  // by the time they were asked for
};

// Runs the query once with as many workers as the options say, the calling thread being the first.
// Times are given from `start`. The first error of a worker stops all and is returned. cancelled:
// the context was told to stop.
Result<PipelineRun> run_pipeline(SourceContext& context, BlockSource& source, Nanoseconds start);

// The floor of the query's transfer: its blocks moved with as many in flight as the Mover lets
// through, and nothing else done. As measure_transfer_floor() says, unsupervised.
Result<Nanoseconds> run_floor(SourceContext& context);

}  // namespace headrace
