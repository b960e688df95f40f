// Workers that take chunks in order and run a query's pipeline over the blocks of a source.
// Thread-compatible.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "headrace/clock.h"
#include "workload/plan.h"
#include "workload/sources.h"

namespace headrace {

struct PipelineRun {
  Answer answer;
  Nanoseconds compute{0};  // all workers together
  Nanoseconds waited{0};
  std::vector<BlockTrace> blocks;  // by the time they were asked for
};

// Tells workers to stop: because the caller asked, or because one of them failed. Only the calling
// thread asks the caller's function (it may belong to an interpreter); the others see the flag.
class StopFlag {
 public:
  explicit StopFlag(const std::function<bool()>& asked);
  // Thread-safe.
  bool operator()();
  void set() { stopped_.store(true); }

 private:
  const std::function<bool()>& asked_;
  const std::thread::id caller_;
  std::atomic<bool> stopped_{false};
};

// Runs the query once with `threads` workers, the caller being the first. Times are given from
// `start`. The first error of a worker stops all and is returned.
Result<PipelineRun> run_pipeline(const QueryPlan& plan, unsigned threads, BlockSource& source,
                                 const Clock& clock, Nanoseconds start, StopFlag& stop);

}  // namespace headrace
