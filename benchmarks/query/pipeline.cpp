// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/pipeline.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "core/fail.h"
#include "core/mutex.h"
#include "core/thread.h"

namespace headrace {
namespace {

// Results of one worker, on separate cache lines, because workers write them all the time.
struct alignas(128) Worker {
  std::unique_ptr<Pipeline> pipeline;
  std::vector<BlockTrace> blocks;
  Nanoseconds compute{0};
  Nanoseconds waited{0};
};

class PipelineRunner {
 public:
  PipelineRunner(SourceContext& context, BlockSource& source, Nanoseconds start)
      : context_(context), source_(source), start_(start) {}

  // Takes chunks until none is left, or any worker has failed.
  void work(unsigned number, Worker& worker) {
    for (;;) {
      // Each chunk goes to one worker; the source provides its blocks.
      const std::uint64_t chunk = next_chunk_.fetch_add(1);
      if (chunk >= context_.scan.chunks()) return;
      Status outcome = context_.stop ? Status(fail(ErrorCode::cancelled, "stopped"))
                                     : run_chunk(number, worker, chunk);
      if (!outcome) {
        context_.stop = true;
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
  Nanoseconds now() const { return context_.mover.clock().now() - start_; }

  Status run_chunk(unsigned number, Worker& worker, std::uint64_t chunk) {
    const std::vector<Column>& wanted = context_.scan.columns;
    std::vector<ColumnSlice> columns;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      BlockTrace trace{.column = wanted[i].name, .chunk = chunk, .wait_start = now()};
      auto bytes = source_.get(number, i, chunk);
      if (!bytes) {
        (void)source_.finish(number);
        return Unexpected(std::move(bytes).error());
      }
      trace.bytes = Bytes{bytes->size()};
      trace.wait_end = now();
      columns.push_back({*bytes, wanted[i].width});
      Status consumed = worker.pipeline->consume(columns);
      trace.use_end = now();
      ++context_.blocks_read;
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
    // A worker that was stopped because of another's error only reports that it was cancelled.
    if (!error_ || error_->code == ErrorCode::cancelled) error_ = std::move(error);
  }

  SourceContext& context_;
  BlockSource& source_;
  const Nanoseconds start_;
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

Result<PipelineRun> run_pipeline(SourceContext& context, BlockSource& source, Nanoseconds start) {
  const QueryScan& scan = context.scan;
  const unsigned threads = context.options.threads;
  std::vector<Worker> workers(threads);
  for (Worker& worker : workers) {
    HEADRACE_TRY(worker.pipeline, scan.query->make(scan.columns, scan.rows));
    worker.blocks.reserve((scan.chunks() / threads + 1) * scan.columns.size());
  }
  PipelineRunner runner(context, source, start);
  std::vector<std::thread> others;
  Status started;
  for (unsigned i = 1; i < threads && started; ++i) {
    auto thread =
        start_thread("headrace-query", [&runner, &workers, i] { runner.work(i, workers[i]); });
    if (thread) {
      others.push_back(*std::move(thread));
    } else {
      context.stop = true;
      started = Unexpected(std::move(thread).error());
    }
  }
  if (started) runner.work(0, workers[0]);
  for (std::thread& thread : others) join(thread);
  source.end();
  HEADRACE_TRY_STATUS(std::move(started));
  if (auto error = runner.error()) return Unexpected(*std::move(error));
  return gather(workers);
}

}  // namespace headrace
