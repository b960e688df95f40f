// SPDX-License-Identifier: Apache-2.0
// Workloads on machines that are only described.
#include "benchmarks/kvcache/simulate.h"
#include "benchmarks/query/simulated/simulate.h"
#include "interruptible.h"
#include "module.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

template <auto Simulate>
std::string simulate(const std::string& machine, const std::string& options, nb::object stop,
                     nb::object progress) {
  Interruptible callbacks(std::move(stop), std::move(progress));
  auto report = [&] {
    const GilRelease release;
    return Simulate(machine, options,
                    {.stop = [&] { return callbacks.stop(); },
                     .progress = [&](std::size_t done,
                                     std::size_t total) { callbacks.progress(done, total); }});
  }();
  callbacks.rethrow();
  return unwrap(std::move(report));
}

std::string measure(const std::string& query) {
  auto cost = [&] {
    const GilRelease release;
    return measure_operators_json(query);
  }();
  return unwrap(std::move(cost));
}

}  // namespace

void bind_simulated(nb::module_& m) {
  m.def("simulate_query", &simulate<simulate_query>, "machine"_a, "options"_a = "{}", nb::kw_only(),
        "stop"_a = nb::none(), "progress"_a = nb::none(),
        nb::sig("def simulate_query(machine: str, options: str = '{}', *, stop: "
                "typing.Callable[[], bool] | None = None, progress: typing.Callable[[int, int], "
                "None] | None = None) -> str"),
        "Runs a query in virtual time on a machine, a JSON document, with the production pipeline, "
        "cache and Mover. Options and the report are JSON ("
        "benchmarks/query/simulated/simulate.h). Both "
        "functions are called every 50 ms: `stop` ends the run, whose report then says so; "
        "`progress` gets blocks done and in all.");
  m.def("simulate_kvcache", &simulate<simulate_kvcache>, "machine"_a, "options"_a, nb::kw_only(),
        "stop"_a = nb::none(), "progress"_a = nb::none(),
        nb::sig("def simulate_kvcache(machine: str, options: str, *, stop: "
                "typing.Callable[[], bool] | None = None, progress: typing.Callable[[int, int], "
                "None] | None = None) -> str"),
        "Serves requests from the production KV store in virtual time on a machine with a GPU. "
        "Options and the report are JSON (benchmarks/kvcache/simulate.h); `stop` and `progress` "
        "are those of simulate_query(), and progress counts requests.");
  m.def("measure_operators", &measure, "query"_a = "q6",
        "Measures the operators of a query on this host: the member \"operators\" of the options "
        "of simulate_query(), as JSON.");
}

}  // namespace headrace::python
