// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/pipeline.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "benchmarks/query/input/supervise.h"
#include "core/fail.h"
#include "core/mutex.h"
#include "core/thread.h"

namespace headrace {
namespace {

// A chunk in progress, and the results of all chunks that were in this place. One thread at a time
// uses it. On separate cache lines, because threads write to them all the time.
struct alignas(128) Slot {
  unsigned number = 0;
  std::unique_ptr<Pipeline> pipeline;
  std::uint64_t chunk = 0;
  std::vector<ColumnSlice> columns;
  std::vector<BlockTrace> blocks;
  Nanoseconds compute{0};
  Nanoseconds waited{0};
};

class PipelineRunner {
 public:
  PipelineRunner(SourceContext& context, BlockSource& source, Nanoseconds start)
      : context_(context),
        source_(source),
        start_(start),
        slots_(context.options.slots()),
        next_chunk_(context.scan.first_chunk()) {}

  Status prepare() {
    const QueryScan& scan = context_.scan;
    for (Slot& slot : slots_) {
      slot.number = static_cast<unsigned>(&slot - slots_.data());
      HEADRACE_TRY(slot.pipeline, scan.query->make(scan.columns, scan.rows));
      slot.blocks.reserve((scan.chunks() / slots_.size() + 1) * scan.columns.size());
      free_.put(slot);
    }
    if (scan.chunks() == 0) close();
    return {};
  }

  // A thread of the run: those of the first stage come first.
  void work(unsigned thread) {
    Status outcome;
    if (context_.options.aggregators == 0) {
      outcome = take_chunks(slots_[thread]);
    } else if (thread < context_.options.threads) {
      outcome = filter();
    } else {
      outcome = aggregate();
    }
    if (outcome) return;
    context_.run.stop = true;
    close();
    keep(std::move(outcome).error());
  }

  Result<PipelineRun> gather() {
    {
      const MutexLock lock(mutex_);
      if (error_) return Unexpected(*error_);
    }
    PipelineRun run;
    Pipeline& all = *slots_.front().pipeline;
    for (Slot& slot : slots_) {
      if (slot.number > 0) HEADRACE_TRY_STATUS(all.merge(*slot.pipeline));
      run.compute += slot.compute;
      run.waited += slot.waited;
      std::ranges::move(slot.blocks, std::back_inserter(run.blocks));
    }
    std::ranges::sort(run.blocks, {}, &BlockTrace::wait_start);
    run.result = std::move(slots_.front().pipeline);
    return run;
  }

 private:
  Nanoseconds now() const { return context_.mover.clock().now() - start_; }

  // Takes chunks until none is left, or any thread has failed.
  Status take_chunks(Slot& slot) {
    while (begin_chunk(slot)) {
      HEADRACE_TRY_STATUS(consume(slot, context_.scan.columns.size()));
      HEADRACE_TRY_STATUS(source_.finish(slot.number));
    }
    return stopped();
  }

  Status filter() {
    for (;;) {
      Slot* const slot = free_.take(context_.run.stop);
      if (slot == nullptr || !begin_chunk(*slot)) return stopped();
      HEADRACE_TRY_STATUS(consume(*slot, context_.scan.query->filters));
      filtered_.put(*slot);
    }
  }

  Status aggregate() {
    while (Slot* const slot = filtered_.take(context_.run.stop)) {
      HEADRACE_TRY_STATUS(consume(*slot, context_.scan.columns.size()));
      HEADRACE_TRY_STATUS(source_.finish(slot->number));
      if (++aggregated_ == context_.scan.chunks()) close();
      free_.put(*slot);
    }
    return stopped();
  }

  // Ends the waits of both stages.
  void close() {
    free_.close();
    filtered_.close();
  }

  Status stopped() const {
    return context_.run.stop ? Status(fail(ErrorCode::cancelled, "stopped")) : Status{};
  }

  // Each chunk goes to one slot; the source provides its blocks. False: there is none left, or the
  // run must stop.
  bool begin_chunk(Slot& slot) {
    slot.chunk = next_chunk_.fetch_add(1);
    slot.columns.clear();
    return slot.chunk < context_.scan.end_chunk() && !context_.run.stop;
  }

  // Takes the columns of the slot's chunk up to `end`.
  Status consume(Slot& slot, std::size_t end) {
    Status outcome;
    for (std::size_t i = slot.columns.size(); i < end && outcome; ++i) {
      outcome = consume_column(slot, i);
    }
    if (!outcome) (void)source_.finish(slot.number);
    return outcome;
  }

  Status consume_column(Slot& slot, std::size_t i) {
    const Column& column = context_.scan.columns[i];
    BlockTrace trace{.column = column.name, .chunk = slot.chunk, .wait_start = now()};
    HEADRACE_TRY(const auto bytes, source_.get(slot.number, i, slot.chunk));
    trace.bytes = Bytes{bytes.size()};
    trace.wait_end = now();
    slot.columns.push_back({bytes, column.width});
    Status consumed = slot.pipeline->consume(slot.columns);
    trace.use_end = now();
    ++context_.run.blocks_read;
    slot.waited += trace.wait_end - trace.wait_start;
    slot.compute += trace.use_end - trace.wait_end;
    slot.blocks.push_back(std::move(trace));
    return consumed;
  }

  void keep(Error error) {
    const MutexLock lock(mutex_);
    // A thread that was stopped because of another's error only reports that it was cancelled.
    if (!error_ || error_->code == ErrorCode::cancelled) error_ = std::move(error);
  }

  // Slots on their way from one stage to the other, in order.
  class Queue {
   public:
    void put(Slot& slot) {
      const MutexLock lock(mutex_);
      slots_.push_back(&slot);
      changed_.notify_one();
    }
    // Null: closed, or `stop` became true.
    Slot* take(const std::atomic<bool>& stop) {
      const MutexLock lock(mutex_);
      while (slots_.empty() && !closed_ && !stop) changed_.wait_for(mutex_, kWaitStep);
      if (closed_ || stop) return nullptr;
      Slot* const slot = slots_.front();
      slots_.pop_front();
      return slot;
    }
    void close() {
      const MutexLock lock(mutex_);
      closed_ = true;
      changed_.notify_all();
    }

   private:
    Mutex mutex_;
    CondVar changed_;
    std::deque<Slot*> slots_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
  };

  SourceContext& context_;
  BlockSource& source_;
  const Nanoseconds start_;
  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> next_chunk_;
  std::atomic<std::uint64_t> aggregated_{0};
  Queue free_;
  Queue filtered_;
  Mutex mutex_;
  std::optional<Error> error_ GUARDED_BY(mutex_);
};

}  // namespace

Result<PipelineRun> run_pipeline(SourceContext& context, BlockSource& source, Nanoseconds start) {
  PipelineRunner runner(context, source, start);
  HEADRACE_TRY_STATUS(runner.prepare());
  std::vector<std::thread> others;
  Status started;
  for (unsigned i = 1; i < context.options.threads + context.options.aggregators && started; ++i) {
    auto thread = start_thread("headrace-query", [&runner, i] { runner.work(i); });
    if (thread) {
      others.push_back(*std::move(thread));
    } else {
      context.run.stop = true;
      started = Unexpected(std::move(thread).error());
    }
  }
  if (started) runner.work(0);
  for (std::thread& thread : others) join(thread);
  source.end();
  HEADRACE_TRY_STATUS(std::move(started));
  return runner.gather();
}

}  // namespace headrace
