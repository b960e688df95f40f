// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "benchmarks/query/input/supervise.h"
#include "benchmarks/query/pipeline.h"
#include "benchmarks/query/scan.h"
#include "benchmarks/query/sources.h"
#include "core/fail.h"
#include "core/mutex.h"

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
      const std::uint64_t chunk = event.extent.offset / (scan.chunk_rows * scan.columns[i].width);
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
  Prepared() = default;
  Prepared(Prepared&&) = default;
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
  options.observer = [log = prepared.fetches.get()](const CacheEvent& event) { log->note(event); };
  HEADRACE_TRY(prepared.cache, Cache::create(context.mover, std::move(options)));
  return {};
}

Result<Prepared> prepare(const SourceContext& context) {
  const QueryScan& scan = context.scan;
  Prepared prepared;
  const QueryMode mode = context.options.mode;
  if (mode == QueryMode::resident || !scan.slow_is_storage) {
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
  return prepared;
}

Result<QueryRun> run_mode(SourceContext& context) {
  HEADRACE_TRY(Prepared prepared, prepare(context));
  const QueryScan& scan = context.scan;
  QueryRun run{.bytes = scan.bytes()};
  if (scan.slow_is_storage) {
    HEADRACE_TRY(run.cached_before, make_cold(scan));
  }
  const Clock& clock = context.mover.clock();
  const Nanoseconds start = clock.now();
  if (prepared.cache) prepared.source = cached_source(context, *prepared.cache, prepared.objects);
  auto pipeline = run_pipeline(context, *prepared.source, start);
  run.time = clock.now() - start;
  if (!pipeline) return Unexpected(std::move(pipeline).error());
  run.answer = std::move(pipeline->answer);
  run.compute = pipeline->compute;
  run.waited = pipeline->waited;
  run.blocks = std::move(pipeline->blocks);
  if (prepared.cache) {
    run.cache = prepared.cache->stats();
    prepared.fetches->complete(run.blocks, scan, prepared.objects, start);
  } else if (context.options.mode == QueryMode::direct && scan.slow_is_storage) {
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
        : keep(std::move(kept)), context(std::move(scan), std::move(asked), by) {}
    const std::shared_ptr<void> keep;  // destroyed last
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
      .progress = [&] { return mover.stats().bytes.value + run->context.blocks_read; },
      .source = fmt::format("{} node {} ({})", to_string(slow.kind), raw(slow.id), slow.name)};
  HEADRACE_TRY_STATUS(supervise(supervision, run->context.stop, [run, work]() -> Status {
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
