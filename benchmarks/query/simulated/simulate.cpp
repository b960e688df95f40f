// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/simulated/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <thread>
#include <utility>

#include "benchmarks/query/pipeline.h"
#include "benchmarks/query/simulated/settings.h"
#include "benchmarks/query/sources.h"
#include "core/fail.h"
#include "core/thread.h"
#include "headrace/random.h"
#include "sim/sim.h"

namespace headrace {
namespace simulated {
namespace {

using Json = nlohmann::ordered_json;

// Lines of 64 bytes in flight per core where neither the options nor the model say: the misses that
// the second-level cache of Golden Cove tracks (Intel's optimization manual).
constexpr double kAssumedLines = 48;
// The least bytes of a node's budget per shard of a cache, as CacheOptions::shards = 0.
constexpr std::uint64_t kShardBytes = 256 << 20;

// The speed of one column's operator on a core of the machine.
struct Operator {
  std::string column;
  double bytes_per_second = 0;
};

// The operators of a query on the described machine, and where their constants are from.
struct Operators {
  std::vector<Operator> columns;
  double frequency_hz = 0;
  double vector_bytes = 0;
  double lines_in_flight = 0;
  std::string frequency_basis;
  std::string vector_basis;
  std::string lines_basis;
};

// One group's run.
struct GroupRun {
  Group group;
  QueryScan scan;
  std::vector<std::shared_ptr<sim::ReservedMemory>> columns;
  std::vector<std::size_t> works;  // by column
  struct Pass {
    Nanoseconds time{0};
    Nanoseconds waited{0};
    Nanoseconds computed{0};
  };
  std::vector<Pass> passes;
  std::optional<CacheStats> cache;
  Status outcome;
};

// All of a simulation. Kept alive by the run, also by one that had to be left behind.
struct Simulation {
  Machine machine;
  Settings settings;
  QueryDefinition query;
  Operators operators;
  std::vector<std::unique_ptr<GroupRun>> groups;
  // Blocks are columns of chunks. The thread that called simulate_query() reads both too.
  std::atomic<std::size_t> blocks{0};
  std::atomic<std::size_t> all_blocks{0};
  Nanoseconds time{0};
  MoverStats mover;
  std::vector<sim::FlowUse> flows;
  std::vector<sim::CeilingUse> ceilings;
  std::uint64_t switches = 0;
  std::uint64_t solved = 0;
  bool bound = false;
  bool interrupted = false;
  Status outcome;
};

// Takes the time of its columns. The pipeline of one slot of a group.
class TimedPipeline final : public Pipeline {
 public:
  struct Context {
    sim::Host* host = nullptr;
    GroupRun* run = nullptr;
    std::atomic<std::size_t>* blocks = nullptr;
    double jitter = 0;
    Random random{0};
  };
  // Set by the thread that calls run_pipeline(), which makes the pipelines of all slots.
  static thread_local Context* context;

  explicit TimedPipeline(Context& of) : context_(of), random_(of.random()) {}

  Status consume(std::span<const ColumnSlice> columns) override {
    sim::Host& host = *context_.host;
    if (host.turns().stopping()) return fail(ErrorCode::cancelled, "stopped");
    const double drawn = static_cast<double>(random_.below(1 << 20)) / (1 << 20);
    const double times = 1 + context_.jitter * (2 * drawn - 1);
    ++*context_.blocks;
    return host.compute(context_.run->group.cpus, columns.back().bytes,
                        context_.run->works[columns.size() - 1], times);
  }
  Status merge(const Pipeline&) override { return {}; }
  Answer answer() const override { return {}; }

 private:
  Context& context_;
  Random random_;
};

thread_local TimedPipeline::Context* TimedPipeline::context = nullptr;

Result<std::unique_ptr<Pipeline>> make_timed(std::span<const Column>, std::uint64_t) {
  return std::make_unique<TimedPipeline>(*TimedPipeline::context);
}

// The stages of a query, with operators that take time.
Result<QueryDefinition> timed(const std::string& query) {
  HEADRACE_TRY(const QueryDefinition* real, find_query(query));
  return QueryDefinition{.name = "timed",
                         .columns = real->columns,
                         .filters = real->filters,
                         .sql = {},
                         .make = &make_timed};
}

// ---- constants

Result<Operators> operators_of(const Settings& settings, const MachineModel& model, NodeId cpus) {
  OperatorCost cost;
  if (settings.operators) {
    cost = *settings.operators;
  } else {
    HEADRACE_TRY(cost, measure_operators(settings.query));
  }
  const CoreModel* const core = cores_of(model, cpus);
  Operators all{.frequency_hz = cost.cycles_per_second,
                .vector_bytes = cost.vector_bytes,
                .lines_in_flight = kAssumedLines,
                .frequency_basis = "measured on this host: the model has none",
                .vector_basis = "as the operators were compiled",
                .lines_basis = "assumed: the misses that Golden Cove's second-level cache tracks"};
  const auto basis = [&](const char* what) {
    return fmt::format("{}: {} ({})", what, kConstantBases.of(core->evidence.basis),
                       core->evidence.source);
  };
  if (core != nullptr && core->frequency_hz) {
    all.frequency_hz = *core->frequency_hz;
    all.frequency_basis = basis("of the machine's model");
  }
  if (settings.target_vectors && core != nullptr && core->vector_bytes) {
    all.vector_bytes = *core->vector_bytes;
    all.vector_basis = fmt::format("{}; operators of {} bytes scaled in proportion",
                                   basis("of the machine's model"), cost.vector_bytes);
  }
  if (settings.lines_in_flight) {
    all.lines_in_flight = *settings.lines_in_flight;
    all.lines_basis = "given";
  } else if (core != nullptr && core->lines_in_flight.contains("sequential load")) {
    all.lines_in_flight = core->lines_in_flight.at("sequential load");
    all.lines_basis = basis("of the machine's model, sequential load");
  }
  for (const ColumnCost& one : cost.columns) {
    all.columns.push_back({.column = one.column,
                           .bytes_per_second = one.bytes_per_cycle * all.frequency_hz *
                                               all.vector_bytes / cost.vector_bytes});
  }
  return all;
}

// ---- one group

Result<QueryScan> scan_of(const Settings& settings, const QueryDefinition& query) {
  QueryScan scan{.query = &query};
  HEADRACE_TRY(scan.columns, lineitem_columns_of(settings.query));
  std::uint64_t row_bytes = 0;
  std::uint64_t widest = 1;
  for (const Column& column : scan.columns) {
    row_bytes += column.width;
    widest = std::max<std::uint64_t>(widest, column.width);
  }
  const std::uint64_t rows = settings.working_set.value / settings.groups.size() / row_bytes;
  scan.rows = std::max(rows / kRowAlignment, std::uint64_t{1}) * kRowAlignment;
  scan.chunk_rows =
      std::max(settings.chunk.value / widest / kRowAlignment, std::uint64_t{1}) * kRowAlignment;
  return scan;
}

Result<std::unique_ptr<GroupRun>> make_group(sim::Host& host, const Simulation& simulation,
                                             const Group& group) {
  const Settings& settings = simulation.settings;
  auto run = std::make_unique<GroupRun>();
  run->group = group;
  HEADRACE_TRY(run->scan, scan_of(settings, simulation.query));
  const Node& memory = *host.machine().find(group.slow);
  std::optional<Estimate> hits;
  if (settings.mode == Mode::cache) {
    if (!memory.side_cache) {
      return fail(ErrorCode::unsupported,
                  "node {} of {} has no memory-side cache for the mode cache; take a machine in "
                  "cache mode, as xeon-max-cache",
                  raw(group.slow), host.machine().name);
    }
    const double ratio = static_cast<double>(run->scan.bytes().value) /
                         static_cast<double>(memory.side_cache->size.value);
    HEADRACE_TRY(hits, side_cache_hits(SideCachePattern::scan, ratio));
  }
  const NodeId home = settings.mode == Mode::resident ? group.fast : group.slow;
  for (std::size_t i = 0; i < run->scan.columns.size(); ++i) {
    HEADRACE_TRY(auto column, host.reserve(home, run->scan.column_bytes(i)));
    run->columns.push_back(std::move(column));
    const Operator& one = simulation.operators.columns[i];
    HEADRACE_TRY(const std::size_t work,
                 host.add_work({.name = fmt::format("{} {}", settings.query, one.column),
                                .bytes_per_second = one.bytes_per_second,
                                .lines_in_flight = simulation.operators.lines_in_flight,
                                .side_cache_hits = hits}));
    run->works.push_back(work);
  }
  return run;
}

Result<std::unique_ptr<Cache>> make_cache(sim::Host& host, Mover& mover, const Settings& settings,
                                          const GroupRun& run) {
  const Node& fast = *host.machine().find(run.group.fast);
  const auto sharing =
      static_cast<std::uint64_t>(std::ranges::count(settings.groups, run.group.fast, &Group::fast));
  const Bytes usual = fast.capacity.value_or(64_GiB) / sharing;
  CacheOptions options;
  const Bytes budget = settings.budget.value_or(usual);
  options.budgets = {{run.group.fast, budget}};
  options.placement = place::always(run.group.fast);
  options.reserve = true;  // as run_query()
  // As a process on the CPUs of the group would have.
  const std::size_t cpus = host.machine().find(run.group.cpus)->cpus.size();
  options.shards = std::bit_floor(
      std::max<std::size_t>(std::min<std::size_t>(cpus / 2, budget.value / kShardBytes), 1));
  options.slab = slab_for(settings.chunk, options.shards);
  options.allocate = [&host](NodeId node, Bytes bytes) { return host.reserve_object(node, bytes); };
  return Cache::create(mover, std::move(options));
}

Status scan_all(sim::Host& host, Mover& mover, Simulation& simulation, std::size_t number) {
  const Settings& settings = simulation.settings;
  GroupRun& run = *simulation.groups[number];
  QueryOptions options{.query = settings.query,
                       .block = settings.chunk,
                       .threads = settings.threads,
                       .aggregators = settings.aggregators,
                       .slow = run.group.slow,
                       .fast = run.group.fast};
  options.prefetch.lead =
      Nanoseconds{static_cast<std::int64_t>(std::min(settings.lead_seconds, 1e6) * 1e9)};
  options.prefetch.window = settings.window;
  RunControl control;
  SourceContext context(run.scan, options, mover, control);
  std::vector<const Object*> objects;
  for (const auto& column : run.columns) objects.push_back(&column->object());
  std::unique_ptr<Cache> cache;
  if (settings.mode == Mode::prefetch) {
    HEADRACE_TRY(cache, make_cache(host, mover, settings, run));
  }
  TimedPipeline::Context timed{.host = &host,
                               .run = &run,
                               .blocks = &simulation.blocks,
                               .jitter = settings.jitter,
                               .random = Random(settings.seed + number)};
  TimedPipeline::context = &timed;
  Status outcome;
  for (unsigned pass = 0; pass < settings.passes && outcome; ++pass) {
    const Nanoseconds start = host.turns().now();
    const auto source =
        cache ? cached_source(context, *cache, objects) : memory_source(context, objects);
    const auto done = run_pipeline(context, *source, start);
    if (done) {
      run.passes.push_back(
          {.time = host.turns().now() - start, .waited = done->waited, .computed = done->compute});
    } else {
      outcome = Unexpected(done.error());
    }
  }
  if (cache) {
    run.cache = cache->stats();
    quiesce(*cache, objects);
  }
  return outcome;
}

// ---- the simulation

Status run_groups(sim::Host& host, Mover& mover, Simulation& simulation) {
  std::vector<std::thread> threads;
  Status started;
  for (std::size_t i = 0; i < simulation.groups.size() && started; ++i) {
    auto thread = start_thread("headrace-group", [&host, &mover, &simulation, i] {
      simulation.groups[i]->outcome = scan_all(host, mover, simulation, i);
    });
    if (thread) {
      threads.push_back(*std::move(thread));
    } else {
      started = Unexpected(std::move(thread).error());
    }
  }
  for (std::thread& thread : threads) join(thread);
  HEADRACE_TRY_STATUS(std::move(started));
  for (const auto& run : simulation.groups) {
    if (run->outcome) continue;
    if (run->outcome.error().code != ErrorCode::cancelled) return run->outcome;
    simulation.interrupted = true;
  }
  return {};
}

Status simulate(sim::Scheduler& turns, Simulation& simulation) {
  const Settings& settings = simulation.settings;
  HEADRACE_TRY(const auto host, sim::Host::create(turns, simulation.machine));
  // The memory of a host must not outlive it.
  const struct Release {
    Simulation& of;
    ~Release() {
      for (const auto& run : of.groups) run->columns.clear();
    }
  } release{simulation};
  const MachineModel& model = host->solver().model();
  simulation.bound = model.bound;
  HEADRACE_TRY(simulation.query, timed(settings.query));
  HEADRACE_TRY(simulation.operators, operators_of(settings, model, settings.groups.front().cpus));
  for (const Group& group : settings.groups) {
    HEADRACE_TRY(auto run, make_group(*host, simulation, group));
    simulation.all_blocks += run->scan.chunks() * run->columns.size() * settings.passes;
    simulation.groups.push_back(std::move(run));
  }
  Backends backends;
  MoverOptions options{.clock = &turns, .waiting = &turns};
  if (settings.mode == Mode::prefetch) {
    HEADRACE_TRY(backends,
                 sim::open_kinds(*host, {&settings.engine, 1}, {.workers = settings.workers}));
    HEADRACE_TRY(options.route, route_over(simulation.machine, settings.engine, settings.route));
  }
  const Nanoseconds start = turns.now();
  Status outcome;
  {
    Mover mover(simulation.machine, backends, std::move(options));
    outcome = run_groups(*host, mover, simulation);
    simulation.time = turns.now() - start;
    simulation.mover = mover.stats();
  }
  simulation.flows = host->flows().flow_use();
  simulation.ceilings = host->flows().ceiling_use();
  simulation.solved = host->flows().solved();
  simulation.switches = turns.switches();
  return outcome;
}

// ---- the report

Json passes_json(const Simulation& simulation) {
  Json passes = Json::array();
  for (unsigned pass = 0; pass < simulation.settings.passes; ++pass) {
    GroupRun::Pass all;
    bool complete = true;
    for (const auto& run : simulation.groups) {
      complete = complete && pass < run->passes.size();
      if (!complete) break;
      all.time = std::max(all.time, run->passes[pass].time);
      all.waited += run->passes[pass].waited;
      all.computed += run->passes[pass].computed;
    }
    if (!complete) break;
    passes.push_back({{"seconds", seconds(all.time)},
                      {"waited_seconds", seconds(all.waited)},
                      {"computed_seconds", seconds(all.computed)}});
  }
  return passes;
}

Json cache_json(const Simulation& simulation) {
  CacheStats all;
  for (const auto& run : simulation.groups) {
    if (!run->cache) return nullptr;
    add(all, *run->cache);
  }
  return {{"hits", all.hits},
          {"inflight_hits", all.inflight_hits},
          {"misses", all.misses},
          {"prefetched", all.prefetched},
          {"first_uses", all.first_uses},
          {"late", all.late},
          {"wasted_bytes", all.wasted_bytes.value},
          {"evictions", all.evictions},
          {"refusals", all.refusals},
          {"failures", all.failures}};
}

Json flows_json(const Simulation& simulation, std::map<std::string, double>& by_engine) {
  Json flows = Json::array();
  for (const sim::FlowUse& use : simulation.flows) {
    Json limited = Json::array();
    for (const auto& one : use.limited) {
      limited.push_back({{"by", one.by}, {"seconds", one.seconds}});
    }
    if (use.engine) by_engine[simulation.machine.find(*use.engine)->name] += use.bytes;
    flows.push_back({{"flow", use.flow}, {"bytes", use.bytes}, {"limited", std::move(limited)}});
  }
  return flows;
}

Json operators_json(const Operators& operators) {
  Json columns = Json::array();
  for (const Operator& one : operators.columns) {
    columns.push_back({{"column", one.column}, {"bytes_per_second", one.bytes_per_second}});
  }
  return {{"columns", std::move(columns)},
          {"frequency_hz", operators.frequency_hz},
          {"frequency_basis", operators.frequency_basis},
          {"vector_bytes", operators.vector_bytes},
          {"vector_basis", operators.vector_basis},
          {"lines_in_flight", operators.lines_in_flight},
          {"lines_basis", operators.lines_basis}};
}

std::string report(const Simulation& simulation) {
  const Settings& settings = simulation.settings;
  std::uint64_t bytes = 0;
  for (const auto& run : simulation.groups) bytes += run->scan.bytes().value;
  std::map<std::string, double> by_engine;
  Json flows = flows_json(simulation, by_engine);
  Json ceilings = Json::array();
  for (const sim::CeilingUse& use : simulation.ceilings) {
    if (use.seconds <= 0) continue;
    ceilings.push_back({{"ceiling", use.ceiling},
                        {"bytes", use.bytes},
                        {"seconds", use.seconds},
                        {"full_seconds", use.full}});
  }
  const Json document = {{"query", settings.query},
                         {"machine", simulation.machine.name},
                         {"interrupted", simulation.interrupted},
                         {"seconds", seconds(simulation.time)},
                         {"working_set_bytes", bytes},
                         {"passes", passes_json(simulation)},
                         {"groups", settings.groups.size()},
                         {"threads_per_group", settings.threads + settings.aggregators},
                         {"blocks", simulation.blocks.load()},
                         {"cache", cache_json(simulation)},
                         {"engines", by_engine},
                         {"pieces", simulation.mover.pieces},
                         {"flows", std::move(flows)},
                         {"ceilings", std::move(ceilings)},
                         {"operators", operators_json(simulation.operators)},
                         {"upper_bound", simulation.bound},
                         {"turns", simulation.switches},
                         {"solutions", simulation.solved}};
  return document.dump();
}

}  // namespace
}  // namespace simulated

Result<std::string> simulate_query(std::string_view machine, std::string_view options,
                                   const SimulationCalls& calls) {
  const auto simulation = std::make_shared<simulated::Simulation>();
  HEADRACE_TRY(simulation->machine, Machine::from_json(machine));
  HEADRACE_TRY(simulation->settings, simulated::read_settings(simulation->machine, options));
  const auto look = [&](Nanoseconds) {
    if (calls.progress) calls.progress(simulation->blocks, simulation->all_blocks);
    return calls.stop && calls.stop();
  };
  HEADRACE_TRY_STATUS(sim::run({.seed = simulation->settings.seed, .stop = look},
                               [simulation](sim::Scheduler& turns) {
                                 simulation->outcome = simulated::simulate(turns, *simulation);
                               }));
  HEADRACE_TRY_STATUS(std::move(simulation->outcome));
  return simulated::report(*simulation);
}

Result<std::string> measure_operators_json(const std::string& query) {
  HEADRACE_TRY(const OperatorCost cost, measure_operators(query));
  return simulated::to_json(cost).dump();
}

}  // namespace headrace
