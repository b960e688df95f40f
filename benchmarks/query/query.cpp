// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "benchmarks/query/input/supervise.h"
#include "benchmarks/query/pipeline.h"
#include "benchmarks/query/scan.h"
#include "benchmarks/query/sources.h"
#include "core/affinity.h"
#include "core/fail.h"
#include "core/mutex.h"
#include "core/thread.h"

namespace headrace {
namespace {

// Collects the fetch time of each block from the cache's events.
class FetchLog {
 public:
  explicit FetchLog(std::size_t blocks) {
    const MutexLock lock(mutex_);
    events_.reserve(2 * blocks);
  }

  // Called under a lock of the cache.
  void note(const CacheEvent& event) {
    using Kind = CacheEvent::Kind;
    if (event.kind != Kind::fill_started && event.kind != Kind::ready) return;
    const MutexLock lock(mutex_);
    events_.push_back(event);
  }

  // Writes the fetch that served each block into its trace.
  void complete(std::vector<BlockTrace>& blocks, const QueryScan& scan,
                const std::vector<const Object*>& objects, Nanoseconds start) {
    const MutexLock lock(mutex_);
    std::map<std::pair<std::string_view, std::uint64_t>, BlockTrace*> traces;
    for (BlockTrace& block : blocks) traces[{block.column, block.chunk}] = &block;
    for (const CacheEvent& event : events_) {
      const auto object = std::ranges::find(objects, event.extent.object);
      if (object == objects.end()) continue;
      const auto i = static_cast<std::size_t>(object - objects.begin());
      const std::uint64_t chunk =
          scan.object_chunk + event.extent.offset / (scan.chunk_rows * scan.columns[i].width);
      const auto found = traces.find({scan.columns[i].name, chunk});
      if (found == traces.end()) continue;
      BlockTrace& trace = *found->second;
      const Nanoseconds time = event.time - start;
      if (event.kind == CacheEvent::Kind::ready) {
        trace.fetch_end = time;
      } else if (!trace.fetch_start || time <= trace.wait_end) {
        // A block evicted before its use is fetched again; the last fetch before the use counts.
        trace.fetch_start = time;
      }
    }
  }

 private:
  Mutex mutex_;
  std::vector<CacheEvent> events_ GUARDED_BY(mutex_);
};

// Everything that a mode needs, made before the clock starts. Its destructor waits until no engine
// reads for it.
struct Prepared {
  ~Prepared() {
    if (source) source->end();
    if (cache) quiesce(*cache, objects);
  }

  ColumnBuffers columns;
  std::unique_ptr<FetchLog> fetches;
  std::unique_ptr<Cache> cache;
  std::vector<const Object*> objects;
  std::unique_ptr<BlockSource> source;  // last: it uses all the others
};

Status prepare_cache(const SourceContext& context, Prepared& prepared) {
  prepared.fetches =
      std::make_unique<FetchLog>(context.scan.chunks() * context.scan.columns.size());
  CacheOptions options;
  options.budgets = {{context.options.fast, context.options.budget}};
  options.placement = place::always(context.options.fast);
  // A cache outlives its queries, so the allocation of its memory is not part of one.
  options.reserve = true;
  options.slab = slab_for(context.options.block, 1);  // the observer makes it one shard
  options.observer = [log = prepared.fetches.get()](const CacheEvent& event) { log->note(event); };
  HEADRACE_TRY(prepared.cache, Cache::create(context.mover, std::move(options)));
  return {};
}

// Whether a part's columns are loaded into memory before the clock starts.
bool loads_columns(const QueryOptions& options, bool slow_is_storage) {
  return options.mode == QueryMode::resident || !slow_is_storage;
}

Status prepare(const SourceContext& context, Prepared& prepared) {
  const QueryScan& scan = context.scan;
  const QueryMode mode = context.options.mode;
  if (loads_columns(context.options, scan.slow_is_storage)) {
    const NodeId node = mode == QueryMode::resident ? context.options.fast : context.options.slow;
    HEADRACE_TRY(prepared.columns, load_columns(context, node));
    for (const auto& column : prepared.columns) prepared.objects.push_back(column.get());
  } else {
    for (const auto& file : scan.files) prepared.objects.push_back(file.get());
  }
  switch (mode) {
    case QueryMode::resident: prepared.source = memory_source(context, prepared.objects); break;
    case QueryMode::direct:
      if (scan.slow_is_storage) {
        HEADRACE_TRY(prepared.source, copying_source(context));
      } else {
        prepared.source = memory_source(context, prepared.objects);
      }
      break;
    case QueryMode::mmap: {
      HEADRACE_TRY(prepared.source, mapped_source(context));
      break;
    }
    case QueryMode::prefetch: {
      HEADRACE_TRY_STATUS(prepare_cache(context, prepared));
      break;
    }
  }
  return {};
}

// One group's part of a run.
struct Part {
  Part(QueryScan scan, QueryOptions options, const SourceContext& of)
      : context(std::move(scan), std::move(options), of.mover, of.run) {}

  SourceContext context;
  CpuSet cpus;  // empty: any
  Prepared prepared;
  Result<PipelineRun> outcome = fail(ErrorCode::cancelled, "not begun");
};

Result<std::vector<std::unique_ptr<Part>>> make_parts(const SourceContext& all) {
  std::vector<QueryGroup> groups = all.options.groups;
  if (groups.empty()) groups.push_back({{}, all.options.slow, all.options.fast});
  std::vector<std::unique_ptr<Part>> parts;
  for (const QueryGroup& group : groups) {
    QueryScan scan = all.scan;
    scan.part = parts.size();
    scan.parts = groups.size();
    if (loads_columns(all.options, scan.slow_is_storage)) scan.object_chunk = scan.first_chunk();
    QueryOptions options = all.options;
    options.slow = group.slow;
    options.fast = group.fast;
    parts.push_back(std::make_unique<Part>(std::move(scan), std::move(options), all));
    parts.back()->cpus = group.cpus;
    HEADRACE_TRY_STATUS(prepare(parts.back()->context, parts.back()->prepared));
  }
  return parts;
}

void run_part(Part& part, Nanoseconds start) {
  SourceContext& context = part.context;
  Prepared& prepared = part.prepared;
  if (!part.cpus.empty() && !pin(pthread_self(), part.cpus)) {
    context.run.stop = true;
    part.outcome = fail(ErrorCode::unsupported,
                        "cannot bind threads to the CPUs {}; does a container forbid "
                        "sched_setaffinity?",
                        to_string(part.cpus));
    return;
  }
  if (prepared.cache) prepared.source = cached_source(context, *prepared.cache, prepared.objects);
  part.outcome = run_pipeline(context, *prepared.source, start);
  if (!part.outcome) context.run.stop = true;
}

// Each part by a thread of its own.
void run_parts(std::vector<std::unique_ptr<Part>>& parts, Nanoseconds start) {
  std::vector<std::thread> threads;
  for (const auto& part : parts) {
    auto thread = start_thread("headrace-group", [&part, start] { run_part(*part, start); });
    if (!thread) {
      part->context.run.stop = true;
      part->outcome = Unexpected(std::move(thread).error());
      break;
    }
    threads.push_back(*std::move(thread));
  }
  for (std::thread& thread : threads) join(thread);
}

// The outcome of all parts. Of several errors, one that is not only "stopped".
Result<PipelineRun> merge(std::vector<std::unique_ptr<Part>>& parts) {
  const auto failed = [](const auto& part) { return !part->outcome; };
  const auto because = [](const auto& part) {
    return !part->outcome && part->outcome.error().code != ErrorCode::cancelled;
  };
  auto found = std::ranges::find_if(parts, because);
  if (found == parts.end()) found = std::ranges::find_if(parts, failed);
  if (found != parts.end()) return Unexpected((*found)->outcome.error());
  PipelineRun all = *std::move(parts.front()->outcome);
  for (const auto& part : parts) {
    if (part == parts.front()) continue;
    HEADRACE_TRY_STATUS(all.result->merge(*part->outcome->result));
    all.compute += part->outcome->compute;
    all.waited += part->outcome->waited;
    std::ranges::move(part->outcome->blocks, std::back_inserter(all.blocks));
  }
  std::ranges::stable_sort(all.blocks, {}, &BlockTrace::wait_start);
  return all;
}

Result<QueryRun> run_mode(SourceContext& context) {
  HEADRACE_TRY(auto parts, make_parts(context));
  const QueryScan& scan = context.scan;
  QueryRun run{.bytes = scan.bytes()};
  if (scan.slow_is_storage) {
    HEADRACE_TRY(run.cached_before, make_cold(scan));
  }
  const Clock& clock = context.mover.clock();
  const Nanoseconds start = clock.now();
  run_parts(parts, start);
  run.time = clock.now() - start;
  HEADRACE_TRY(PipelineRun pipeline, merge(parts));
  run.answer = pipeline.result->answer();
  run.compute = pipeline.compute;
  run.waited = pipeline.waited;
  run.blocks = std::move(pipeline.blocks);
  for (const auto& part : parts) {
    const Prepared& prepared = part->prepared;
    if (!prepared.cache) continue;
    if (run.cache) {
      add(*run.cache, prepared.cache->stats());
    } else {
      run.cache = prepared.cache->stats();
    }
    prepared.fetches->complete(run.blocks, part->context.scan, prepared.objects, start);
  }
  if (context.options.mode == QueryMode::direct && scan.slow_is_storage) {
    for (BlockTrace& block : run.blocks) {
      block.fetch_start = block.wait_start;
      block.fetch_end = block.wait_end;
    }
  }
  return run;
}

// Does `work` under supervision. Its resources live until the work has ended.
template <class T>
Result<T> run_supervised(const Table& table, Mover& mover, QueryOptions options,
                         Result<T> (*work)(SourceContext&)) {
  struct Run {
    Run(std::shared_ptr<void> kept, QueryScan scan, QueryOptions asked, Mover& by)
        : keep(std::move(kept)), context(std::move(scan), std::move(asked), by, control) {}
    const std::shared_ptr<void> keep;  // destroyed last
    RunControl control;
    SourceContext context;
    std::optional<Result<T>> outcome;
  };
  HEADRACE_TRY(QueryScan scan, make_scan(table, mover.machine(), options));
  // The caller's functions stay in the calling thread.
  auto stop = std::exchange(options.stop, nullptr);
  auto keep = std::exchange(options.keep, nullptr);
  const Node& slow = *mover.machine().find(options.slow);
  const auto run =
      std::make_shared<Run>(std::move(keep), std::move(scan), std::move(options), mover);
  const Supervision supervision{
      .clock = mover.clock(),
      .waiting = mover.waiting(),
      .stop = std::move(stop),
      .progress = [&] { return mover.stats().bytes.value + run->control.blocks_read; },
      .source = fmt::format("{} node {} ({})", to_string(slow.kind), raw(slow.id), slow.name)};
  HEADRACE_TRY_STATUS(supervise(supervision, run->control.stop, [run, work]() -> Status {
    run->outcome = work(run->context);
    if (!*run->outcome) return Unexpected(run->outcome->error());
    return {};
  }));
  return *std::move(run->outcome);
}

}  // namespace

std::string_view to_string(QueryMode mode) {
  switch (mode) {
    case QueryMode::resident: return "resident";
    case QueryMode::direct: return "direct";
    case QueryMode::mmap: return "mmap";
    case QueryMode::prefetch: return "prefetch";
  }
  return "?";
}

Result<QueryRun> run_query(const Table& table, Mover& mover, const QueryOptions& options) {
  return run_supervised<QueryRun>(table, mover, options, run_mode);
}

Result<Nanoseconds> measure_transfer_floor(const Table& table, Mover& mover,
                                           const QueryOptions& options) {
  return run_supervised<Nanoseconds>(table, mover, options, run_floor);
}

}  // namespace headrace
