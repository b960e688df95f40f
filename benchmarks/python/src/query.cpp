// SPDX-License-Identifier: Apache-2.0
// The query workload: tables of column files, and queries run over them in each mode.
#include "benchmarks/query/query.h"

#include <nanobind/stl/tuple.h>

#include "benchmarks/query/simulated/settings.h"

#include "core/fail.h"
#include "interruptible.h"
#include "module.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

template <>
struct Words<QueryMode> {
  static constexpr const char* what = "query mode";
  static constexpr auto name =
      nb::detail::const_name("typing.Literal['resident', 'direct', 'mmap', 'prefetch']");
  static constexpr QueryMode last = QueryMode::prefetch;
};

using namespace nb::literals;

namespace {

// A Mover of this extension's copy of the library, with all that it borrows.
struct Engines {
  const Machine machine;
  const Backends backends;
  Mover mover;

  Engines(Machine m, Backends b, RoutePolicy route)
      : machine(std::move(m)), backends(std::move(b)), mover(machine, backends, {.route = route}) {}
};
struct EnginesRef {
  std::shared_ptr<Engines> engines;
};

void open_engines(EnginesRef* self, const Machine& machine, const std::string& engine,
                  const std::string& route) {
  Machine own = machine;  // so that Python may change the machine meanwhile
  auto engines = [&]() -> Result<std::shared_ptr<Engines>> {
    const GilRelease release;
    HEADRACE_TRY(auto backends, Backends::open(own));
    HEADRACE_TRY(RoutePolicy policy, simulated::route_by(own, engine, route));
    return std::make_shared<Engines>(std::move(own), std::move(backends), std::move(policy));
  }();
  new (self) EnginesRef{unwrap(std::move(engines))};
}

Table open_table(const Machine& machine, const std::filesystem::path& directory) {
  auto table = [&] {
    const GilRelease release;
    return Table::open(machine, directory);
  }();
  return unwrap(std::move(table));
}

void bind_table(nb::module_& m) {
  nb::class_<EnginesRef>(m, "Engines", "The engines of a machine, for queries.")
      .def("__init__", &open_engines, "machine"_a, nb::kw_only(), "engine"_a = "any",
           "route"_a = "measured",
           "Opens those that work on this host. `engine`: any, cpu or dsa; only these copy between "
           "memories. `route`: measured, one, brute_force or smart.");
  Record<Column>(m, "Column", "A column of fixed-width integers meaning value / 10**scale.")
      .field("name", &Column::name, "Its file is <name>.bin.")
      .field("width", &Column::width, "Bytes of a value.")
      .field("scale", &Column::scale, "Digits after the point.");
  nb::class_<Table>(m, "Table", "A directory of column files, described by its table.json.")
      .def_static("open", &open_table, "machine"_a, "directory"_a,
                  "Checks the description and the size of every file.")
      .def_prop_ro("rows", &Table::rows, "Rows of every column.")
      .def_prop_ro(
          "columns", [](const Table& self) { return self.columns(); }, "As described.")
      .def("__repr__", [](const Table& self) {
        return "Table(" + std::to_string(self.rows()) + " rows, " +
               std::to_string(self.columns().size()) + " columns)";
      });
}

void bind_results(nb::module_& m) {
  Record<AnswerRow>(m, "AnswerRow", "Group keys, then exact values as decimal text.")
      .field("keys", &AnswerRow::keys, "Empty without groups.")
      .field("values", &AnswerRow::values, "Exact.");
  Record<Answer>(m, "Answer", "Rows ordered by their keys.")
      .field("columns", &Answer::columns, "Names of keys, then of values.")
      .field("rows", &Answer::rows, "One per group.");
  Record<BlockTrace>(m, "BlockTrace", "When a block was fetched and used; seconds from the start.")
      .field("column", &BlockTrace::column, "Its column.")
      .field("chunk", &BlockTrace::chunk, "Which chunk of rows.")
      .field("bytes", &BlockTrace::bytes, "Its size.")
      .field("fetch_start", &BlockTrace::fetch_start, "None: it was there, or the OS did it.")
      .field("fetch_end", &BlockTrace::fetch_end, "None: as before.")
      .field("wait_start", &BlockTrace::wait_start, "The pipeline asks for it.")
      .field("wait_end", &BlockTrace::wait_end, "The pipeline has it.")
      .field("use_end", &BlockTrace::use_end, "The pipeline has finished with it.");
  Record<QueryRun>(m, "QueryRun", "What one run of a query gave and took.")
      .field("answer", &QueryRun::answer, "Exact.")
      .field("time", &QueryRun::time, "Seconds.")
      .field("compute", &QueryRun::compute, "Seconds inside the operators, all threads together.")
      .field("waited", &QueryRun::waited, "Seconds waited for blocks, all threads together.")
      .field("bytes", &QueryRun::bytes, "The bytes of the columns that the query uses.")
      .field("cached_before", &QueryRun::cached_before,
             "Bytes of them in the page cache when the clock started; 0 is cold.")
      .field("cache", &QueryRun::cache, "Statistics of the cache, in mode prefetch.")
      .field("blocks", &QueryRun::blocks, "One trace per block, by the time it was asked for.");
}

// CPUs, slow and fast node.
using GroupOfPython = std::tuple<CpuSet, NodeId, NodeId>;

QueryOptions make_options(const std::string& query, NodeId slow, NodeId fast, Bytes block,
                          unsigned threads, Bytes budget, Nanoseconds lead, Bytes window) {
  QueryOptions options{.query = query,
                       .block = block,
                       .threads = threads,
                       .slow = slow,
                       .fast = fast,
                       .budget = budget};
  options.prefetch.lead = lead;
  options.prefetch.window = window;
  return options;
}

// Runs `work(options)` without the GIL while Python's `stop` is asked.
template <class Work>
auto run_interruptibly(QueryOptions options, nb::object stop, Work work) {
  Interruptible callbacks(std::move(stop), nb::none());
  options.stop = [&callbacks] { return callbacks.stop(); };
  auto result = [&] {
    const GilRelease release;
    return work(options);
  }();
  callbacks.rethrow();
  return unwrap(std::move(result));
}

QueryRun run(const Table& table, const EnginesRef& engines, const std::string& query,
             const Word<QueryMode>& mode, const std::vector<GroupOfPython>& groups, Bytes block,
             unsigned threads, unsigned aggregators, Bytes budget, Nanoseconds lead, Bytes window,
             nb::object stop) {
  if (groups.empty()) throw nb::value_error("no groups; give [([], SLOW, FAST)] for one");
  const auto& [any, slow, fast] = groups.front();
  QueryOptions options = make_options(query, slow, fast, block, threads, budget, lead, window);
  options.aggregators = aggregators;
  for (const auto& [cpus, from, to] : groups) options.groups.push_back({cpus, from, to});
  options.mode = mode.get();
  options.keep = engines.engines;
  return run_interruptibly(std::move(options), std::move(stop),
                           [&table, engines = engines.engines](const QueryOptions& final_options) {
                             return run_query(table, engines->mover, final_options);
                           });
}

Nanoseconds transfer_floor(const Table& table, const EnginesRef& engines, const std::string& query,
                           NodeId slow, NodeId fast, Bytes block, nb::object stop) {
  const QueryOptions defaults{};
  QueryOptions options = make_options(query, slow, fast, block, 1, defaults.budget,
                                      defaults.prefetch.lead, defaults.prefetch.window);
  options.mode = QueryMode::direct;
  options.keep = engines.engines;
  return run_interruptibly(std::move(options), std::move(stop),
                           [&table, engines = engines.engines](const QueryOptions& final_options) {
                             return measure_transfer_floor(table, engines->mover, final_options);
                           });
}

void bind_runs(nb::module_& m) {
  m.def("query_names", &query_names, "The queries there are.");
  m.def(
      "query_columns", [](const std::string& query) { return unwrap(query_columns(query)); },
      "query"_a, "The columns a query reads, in the order its pipeline needs them.");
  m.def(
      "query_sql", [](const std::string& query) { return unwrap(query_sql(query)); }, "query"_a,
      "The same query in SQL over a relation called lineitem.");
  const QueryOptions defaults{};
  m.def("run_query", &run, "table"_a, "engines"_a, nb::kw_only(), "query"_a = defaults.query,
        "mode"_a = "prefetch", "groups"_a, "block"_a = defaults.block,
        "threads"_a = defaults.threads, "aggregators"_a = defaults.aggregators,
        "budget"_a = defaults.budget, "lead"_a = defaults.prefetch.lead,
        "window"_a = defaults.prefetch.window, "stop"_a = nb::none(),
        nb::sig("def run_query(table: Table, engines: Engines, *, query: str = 'q6', mode: "
                "typing.Literal['resident', 'direct', 'mmap', 'prefetch'] = 'prefetch', groups: "
                "list[tuple[list[int], int, int]], block: int = 1048576, threads: int = 1, "
                "aggregators: int = 0, budget: int = 268435456, lead: float = 0.05, window: int = "
                "67108864, stop: typing.Callable[[], bool] | None = "
                "None) -> QueryRun"),
        "Runs a query once, its columns starting cold. `groups` are (CPUs, slow node, fast node), "
        "without CPUs: any. Each group scans its part of the rows, from slow to fast, with threads "
        "and a cache of its own. With `aggregators`, `threads` filter, and these threads take the "
        "other columns. `stop` is asked every 50 ms; when it says True CancelledError is raised. "
        "TimedOutError: nothing came from the node "
        "for a minute.");
  m.def(
      "measure_transfer_floor", &transfer_floor, "table"_a, "engines"_a, nb::kw_only(),
      "query"_a = defaults.query, "slow"_a, "fast"_a, "block"_a = defaults.block,
      "stop"_a = nb::none(),
      nb::sig(
          "def measure_transfer_floor(table: Table, engines: Engines, *, query: str = 'q6', slow: "
          "int, fast: int, block: int = 1048576, stop: typing.Callable[[], bool] | None = "
          "None) -> float"),
      "Seconds to move the query's bytes from slow to fast with nothing else to do.");
}

}  // namespace

void bind_query(nb::module_& m) {
  bind_table(m);
  bind_results(m);
  bind_runs(m);
}

}  // namespace headrace::python
