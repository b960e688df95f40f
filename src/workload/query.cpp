#include "headrace/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/fail.h"
#include "core/mutex.h"
#include "workload/pipeline.h"
#include "workload/plan.h"
#include "workload/sources.h"

namespace headrace {
namespace {

// Collects from the cache when each block was fetched.
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
  void complete(std::vector<BlockTrace>& blocks, const QueryPlan& plan,
                const std::vector<const Object*>& objects, Nanoseconds start) {
    const MutexLock lock(mutex_);
    std::map<std::pair<std::string_view, std::uint64_t>, BlockTrace*> traces;
    for (BlockTrace& block : blocks) traces[{block.column, block.chunk}] = &block;
    for (const CacheEvent& event : events_) {
      const auto object = std::ranges::find(objects, event.extent.object);
      if (object == objects.end()) continue;
      const auto i = static_cast<std::size_t>(object - objects.begin());
      const std::uint64_t chunk = event.extent.offset / (plan.chunk_rows * plan.columns[i].width);
      const auto found = traces.find({plan.columns[i].name, chunk});
      if (found == traces.end()) continue;
      BlockTrace& trace = *found->second;
      const Nanoseconds time = event.time - start;
      if (event.kind == CacheEvent::Kind::ready) {
        trace.fetch_end = time;
      } else if (!trace.fetch_start || time <= trace.wait_end) {
        // Fetched again when it was evicted before its use: the last one before it counts.
        trace.fetch_start = time;
      }
    }
  }

 private:
  Mutex mutex_;
  std::vector<CacheEvent> events_ GUARDED_BY(mutex_);
};

// Everything a mode needs, made before the clock starts.
struct Prepared {
  ColumnBuffers columns;
  std::unique_ptr<FetchLog> fetches;
  std::unique_ptr<Cache> cache;
  std::vector<const Object*> objects;
  std::unique_ptr<BlockSource> source;  // last: it uses all the others
};

Status prepare_cache(const SourceContext& context, Prepared& prepared) {
  prepared.fetches =
      std::make_unique<FetchLog>(context.plan.chunks() * context.plan.columns.size());
  CacheOptions options;
  options.budgets = {{context.options.fast, context.options.budget}};
  options.placement = place::always(context.options.fast);
  // A cache outlives its queries: making its memory is not part of one.
  options.reserve = true;
  options.observer = [log = prepared.fetches.get()](const CacheEvent& event) { log->note(event); };
  HEADRACE_TRY(prepared.cache, Cache::create(context.mover, std::move(options)));
  return {};
}

Result<Prepared> prepare(const SourceContext& context) {
  const QueryPlan& plan = context.plan;
  Prepared prepared;
  const QueryMode mode = context.options.mode;
  if (mode == QueryMode::resident || !plan.slow_is_storage) {
    const NodeId node = mode == QueryMode::resident ? context.options.fast : context.options.slow;
    HEADRACE_TRY(prepared.columns, load_columns(context, node));
    for (const auto& column : prepared.columns) prepared.objects.push_back(column.get());
  } else {
    prepared.objects.assign(plan.files.begin(), plan.files.end());
  }
  switch (mode) {
    case QueryMode::resident: prepared.source = memory_source(plan, prepared.objects); break;
    case QueryMode::direct:
      if (plan.slow_is_storage) {
        HEADRACE_TRY(prepared.source, copying_source(context));
      } else {
        prepared.source = memory_source(plan, prepared.objects);
      }
      break;
    case QueryMode::mmap: {
      HEADRACE_TRY(prepared.source, mapped_source(plan));
      break;
    }
    case QueryMode::prefetch: {
      HEADRACE_TRY_STATUS(prepare_cache(context, prepared));
      break;
    }
  }
  return prepared;
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

Result<QueryMode> parse_query_mode(std::string_view text) {
  for (const QueryMode mode :
       {QueryMode::resident, QueryMode::direct, QueryMode::mmap, QueryMode::prefetch}) {
    if (to_string(mode) == text) return mode;
  }
  return fail(ErrorCode::absent, "no mode '{}'; there are resident, direct, mmap, prefetch", text);
}

Result<QueryRun> run_query(const Table& table, Mover& mover, const QueryOptions& options) {
  HEADRACE_TRY(const QueryPlan plan, make_plan(table, mover.machine(), options));
  StopFlag stop(options.stop);
  const SourceContext context{plan, options, mover, [&stop] { return stop(); }};
  HEADRACE_TRY(Prepared prepared, prepare(context));
  QueryRun run{.bytes = plan.bytes()};
  if (plan.slow_is_storage) {
    HEADRACE_TRY(run.cached_before, make_cold(plan));
  }
  const Clock& clock = mover.clock();
  const Nanoseconds start = clock.now();
  if (prepared.cache) prepared.source = cached_source(context, *prepared.cache, prepared.objects);
  auto pipeline = run_pipeline(plan, options.threads, *prepared.source, clock, start, stop);
  run.time = clock.now() - start;
  if (!pipeline) return std::unexpected(std::move(pipeline).error());
  run.answer = std::move(pipeline->answer);
  run.compute = pipeline->compute;
  run.waited = pipeline->waited;
  run.blocks = std::move(pipeline->blocks);
  if (prepared.cache) {
    run.cache = prepared.cache->stats();
    prepared.fetches->complete(run.blocks, plan, prepared.objects, start);
  } else if (options.mode == QueryMode::direct && plan.slow_is_storage) {
    for (BlockTrace& block : run.blocks) {
      block.fetch_start = block.wait_start;
      block.fetch_end = block.wait_end;
    }
  }
  return run;
}

}  // namespace headrace
