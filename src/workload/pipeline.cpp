#include "workload/pipeline.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/fail.h"
#include "core/mutex.h"

namespace headrace {
namespace {

// What one worker has done, on cache lines of its own: the workers write these all the time.
struct alignas(128) Worker {
  std::unique_ptr<Pipeline> pipeline;
  std::vector<BlockTrace> blocks;
  Nanoseconds compute{0};
  Nanoseconds waited{0};
};

class PipelineJob {
 public:
  PipelineJob(const QueryPlan& plan, BlockSource& source, const Clock& clock, Nanoseconds start,
              StopFlag& stop)
      : plan_(plan), source_(source), clock_(clock), start_(start), stop_(stop) {}

  // Takes chunks until there are none, or something went wrong anywhere.
  void work(unsigned number, Worker& worker) {
    for (;;) {
      // Each chunk to one worker; the blocks themselves are handed over by the source.
      const std::uint64_t chunk = next_chunk_.fetch_add(1);
      if (chunk >= plan_.chunks()) return;
      Status outcome = stop_() ? Status(fail(ErrorCode::cancelled, "stopped"))
                               : run_chunk(number, worker, chunk);
      if (!outcome) {
        stop_.set();
        keep(std::move(outcome).error());
        return;
      }
    }
  }

  std::optional<Error> error() {
    const MutexLock lock(mutex_);
    return error_;
  }

 private:
  Nanoseconds now() const { return clock_.now() - start_; }

  Status run_chunk(unsigned number, Worker& worker, std::uint64_t chunk) {
    std::vector<ColumnSlice> columns;
    for (std::size_t i = 0; i < plan_.columns.size(); ++i) {
      BlockTrace trace{.column = plan_.columns[i].name, .chunk = chunk, .wait_start = now()};
      auto bytes = source_.get(number, i, chunk);
      if (!bytes) {
        (void)source_.finish(number);
        return std::unexpected(std::move(bytes).error());
      }
      trace.bytes = Bytes{bytes->size()};
      trace.wait_end = now();
      columns.push_back({*bytes, plan_.columns[i].width});
      Status consumed = worker.pipeline->consume(columns);
      trace.use_end = now();
      worker.waited += trace.wait_end - trace.wait_start;
      worker.compute += trace.use_end - trace.wait_end;
      worker.blocks.push_back(std::move(trace));
      if (!consumed) {
        (void)source_.finish(number);
        return consumed;
      }
    }
    return source_.finish(number);
  }

  void keep(Error error) {
    const MutexLock lock(mutex_);
    // A worker that stopped because of another's error says only that it was stopped.
    if (!error_ || error_->code == ErrorCode::cancelled) error_ = std::move(error);
  }

  const QueryPlan& plan_;
  BlockSource& source_;
  const Clock& clock_;
  const Nanoseconds start_;
  StopFlag& stop_;
  std::atomic<std::uint64_t> next_chunk_{0};
  Mutex mutex_;
  std::optional<Error> error_ GUARDED_BY(mutex_);
};

Result<PipelineRun> gather(std::vector<Worker>& workers) {
  PipelineRun run;
  for (Worker& worker : workers) {
    if (&worker != &workers.front()) {
      HEADRACE_TRY_STATUS(workers.front().pipeline->merge(*worker.pipeline));
    }
    run.compute += worker.compute;
    run.waited += worker.waited;
    std::ranges::move(worker.blocks, std::back_inserter(run.blocks));
  }
  std::ranges::sort(run.blocks, {}, &BlockTrace::wait_start);
  run.answer = workers.front().pipeline->answer();
  return run;
}

}  // namespace

StopFlag::StopFlag(const std::function<bool()>& asked)
    : asked_(asked), caller_(std::this_thread::get_id()) {}

bool StopFlag::operator()() {
  if (stopped_.load()) return true;
  if (std::this_thread::get_id() != caller_ || !asked_()) return false;
  stopped_.store(true);
  return true;
}

Result<PipelineRun> run_pipeline(const QueryPlan& plan, unsigned threads, BlockSource& source,
                                 const Clock& clock, Nanoseconds start, StopFlag& stop) {
  // Before any other worker: it may take every chunk before this thread takes its first.
  if (stop()) return fail(ErrorCode::cancelled, "stopped");
  std::vector<Worker> workers(threads);
  for (Worker& worker : workers) {
    HEADRACE_TRY(worker.pipeline, plan.query->make(plan.columns, plan.rows));
    worker.blocks.reserve((plan.chunks() / threads + 1) * plan.columns.size());
  }
  PipelineJob job(plan, source, clock, start, stop);
  {
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i) {
      others.emplace_back([&job, &workers, i] { job.work(i, workers[i]); });
    }
    job.work(0, workers[0]);
  }
  source.end();
  if (auto error = job.error()) return std::unexpected(*std::move(error));
  return gather(workers);
}

}  // namespace headrace
