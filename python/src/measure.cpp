// SPDX-License-Identifier: Apache-2.0
// Backends as facts, copying with the calling core, and the experiments.
#include <nanobind/stl/variant.h>

#include "handles.h"
#include "measure/instruments/gpu/managed_memory.h"
#include "record.h"
#include "types.h"
#include "view.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

void bind_backends(nb::module_& m) {
  Record<Capabilities>(m, "Capabilities", "Facts about an open backend.")
      .field("name", &Capabilities::name, "cpu, storage, ...")
      .field("engines", &Capabilities::engines, "Engines it drives.")
      .field("max_piece", &Capabilities::max_piece, "Bytes; larger pieces are refused.")
      .field("max_in_flight", &Capabilities::max_in_flight, "Pieces per engine.")
      .field("min_efficient", &Capabilities::min_efficient,
             "Bytes; smaller pieces cost more than they move.")
      .field("inline_below", &Capabilities::inline_below,
             "Bytes; smaller pieces are copied at once.")
      .field("note", &Capabilities::note, "In plain words.");
  nb::class_<Backends>(m, "Backends",
                       "The backends that drive the engines of a machine in this process.")
      .def_static(
          "open",
          [](const Machine& machine) {
            return unwrap(without_gil([&] { return Backends::open(machine); }));
          },
          "machine"_a, "Opens all backends that work here.")
      .def_prop_ro(
          "capabilities",
          [](const Backends& self) {
            std::vector<Capabilities> facts;
            for (const auto& backend : self.all()) facts.push_back(backend->capabilities());
            return facts;
          },
          "Facts about each backend.")
      .def_prop_ro(
          "skipped", [](const Backends& self) { return self.skipped(); },
          "Engines that no backend drives here, each with the reason.");
}

void copy_python_bytes(nb::handle to, nb::handle source, const Word<CopyHint>& hint) {
  const View target(to, PyBUF_WRITABLE);
  const View origin(source, PyBUF_SIMPLE);
  if (target.size() != origin.size()) {
    raise(ErrorCode::invalid, "the two sides differ in length: " + std::to_string(target.size()) +
                                  " and " + std::to_string(origin.size()) + " bytes");
  }
  if (target.data() < origin.data() + origin.size() &&
      origin.data() < target.data() + target.size() && target.size() > 0) {
    raise(ErrorCode::invalid, "the two sides overlap; copy through a third buffer");
  }
  const CopyHint how = hint.get();
  const GilRelease release;
  copy_bytes(target.data(), origin.data(), target.size(), how);
}

void bind_copy(nb::module_& m) {
  m.def("copy_bytes", &copy_python_bytes, "to"_a, "source"_a, nb::kw_only(), "hint"_a = "automatic",
        nb::sig("def copy_bytes(to: typing_extensions.Buffer, source: typing_extensions.Buffer, *, "
                "hint: typing.Literal['automatic', 'keep', 'stream'] = 'automatic') -> None"),
        "Copies memory with the calling core, without the GIL.");
  m.def(
      "copy_kernels",
      [] {
        std::vector<std::string> names;
        for (const CopyKernel& kernel : copy_kernels()) names.emplace_back(kernel.name);
        return names;
      },
      "Names of the non-temporal kernels this CPU can run.");
  m.def(
      "chosen_copy_kernel", [] { return std::string(chosen_copy_kernel().name); },
      "The one the calibration chose for cold data.");
}

using Selections = std::vector<std::pair<std::string, ParameterChoices>>;

Profile run_session(const Machine& machine, const MeasureOptions& options, nb::object stop,
                    nb::object progress) {
  const Machine measured = machine;  // so that Python may change the machine meanwhile
  Interruptible callbacks(std::move(stop), std::move(progress));
  auto profile = without_gil([&] { return measure(measured, options, callbacks.context()); });
  callbacks.rethrow();
  return unwrap(std::move(profile));
}

std::vector<PlannedPoint> run_plan_session(const Machine& machine, std::vector<std::string> names,
                                           ParameterChoices only, std::optional<Nanoseconds> budget,
                                           const std::filesystem::path& directory,
                                           std::vector<Row> known, std::optional<unsigned> rounds,
                                           unsigned launches) {
  const Machine planned = machine;  // so that Python may change the machine meanwhile
  return unwrap(without_gil([&] {
    return plan_session(planned, {.experiments = std::move(names),
                                  .only = std::move(only),
                                  .directory = directory,
                                  .budget = budget,
                                  .known = std::move(known),
                                  .rounds = rounds,
                                  .launches = launches});
  }));
}

Profile run_measure(const Machine& machine, std::vector<std::string> names, ParameterChoices only,
                    const Selections& selections, std::optional<Nanoseconds> budget, double width,
                    std::uint64_t seed, const std::filesystem::path& directory,
                    std::vector<Row> known, std::optional<unsigned> rounds, unsigned launches,
                    unsigned repetitions, bool noise_checks, nb::object stop, nb::object progress) {
  MeasureOptions options{.experiments = std::move(names),
                         .only = std::move(only),
                         .directory = directory,
                         .budget = budget,
                         .width = width,
                         .seed = seed,
                         .known = std::move(known),
                         .rounds = rounds,
                         .launches = launches,
                         .repetitions = repetitions,
                         .noise_checks = noise_checks};
  for (const auto& [experiment, chosen] : selections) {
    options.selections.push_back({experiment, chosen});
  }
  return run_session(machine, options, std::move(stop), std::move(progress));
}

Profile run_quick_session(const Machine& machine, const std::filesystem::path& directory,
                          nb::object stop, nb::object progress) {
  return run_session(machine, quick_session(machine, directory), std::move(stop),
                     std::move(progress));
}

void bind_experiments(nb::module_& m) {
  Record<ParameterInfo>(m, "ParameterInfo", "A parameter of an experiment.")
      .field("name", &ParameterInfo::name, "The name in rows and in `only`.")
      .field("kind", &ParameterInfo::kind, "The kind of its values.")
      .field("required", &ParameterInfo::required,
             "False: third-party profiles and those of older versions may lack it.");
  Record<ExperimentInfo>(m, "ExperimentInfo", "An experiment of measure().")
      .field("name", &ExperimentInfo::name, "The name that measure() takes.")
      .field("description", &ExperimentInfo::description, "One line.")
      .field("parameters", &ExperimentInfo::parameters, "Parameters of its rows, in their order.")
      .field("details", &ExperimentInfo::details,
             "Details that each of its rows with a number has.");
  m.def("experiments", &experiments, "All experiments, in their order.");
}

void bind_sessions(nb::module_& m) {
  m.def(
      "measure", &run_measure, "machine"_a, nb::kw_only(),
      "experiments"_a = std::vector<std::string>{}, "only"_a = ParameterChoices{},
      "selections"_a = Selections{}, "budget"_a = 60.0, "width"_a = 0.03, "seed"_a = 1,
      "directory"_a = std::filesystem::path("."), "known"_a = std::vector<Row>{},
      "rounds"_a = nb::none(), "launches"_a = 1, "repetitions"_a = 3, "noise_checks"_a = true,
      "stop"_a = nb::none(), "progress"_a = nb::none(),
      nb::sig("def measure(machine: Machine, *, experiments: typing.Sequence[str] = (), only: "
              "typing.Mapping[str, int | str | typing.Sequence[int | str]] = {}, selections: "
              "typing.Sequence[tuple[str, typing.Mapping[str, int | str | typing.Sequence[int | "
              "str]]]] = (), budget: "
              "float | None = 60.0, width: float = 0.03, seed: int = 1, directory: "
              "str | os.PathLike[str] = '.', known: "
              "typing.Sequence[Row] = (), rounds: int | None = None, launches: int = 1, "
              "repetitions: int = 3, "
              "noise_checks: bool = True, stop: typing.Callable[[], bool] | None = None, "
              "progress: typing.Callable[[int, int], object] | None = None) -> Profile"),
      "Measures this host. `only`: measure points with these parameters; of several values any "
      "matches, and a node may be given by its kind. `selections`: pairs of an experiment and such "
      "parameters, instead of `experiments` and `only`. `directory`: on the disk that `storage` "
      "measures. `budget`: seconds; None measures everything until it is certain. `width`: the 95 "
      "% interval may be this part of the median wide. `known`: rows with a number are kept. "
      "`rounds`: measure each point this number of times, on fresh memory. `repetitions`: runs in "
      "each round, of which the median counts. `launches`: number of launches that will be merged; "
      "without a budget each measures a point twice, and the least important points once. `stop` "
      "is called between points; if it returns True, the rows so far are returned.");
  Record<PlannedPoint>(m, "PlannedPoint", "A point that measure() would measure.")
      .field("row", &PlannedPoint::row,
             "The row without a number; with a reason if it will not be measured.")
      .field("time", &PlannedPoint::time, "Estimated total seconds; 0 if it will not be measured.")
      .field("distance", &PlannedPoint::distance,
             "Memory to CPUs, or target to source: near, socket, far; else empty.");
  m.def("plan_session", &run_plan_session, "machine"_a, nb::kw_only(),
        "experiments"_a = std::vector<std::string>{}, "only"_a = ParameterChoices{},
        "budget"_a = 60.0, "directory"_a = std::filesystem::path("."),
        "known"_a = std::vector<Row>{}, "rounds"_a = nb::none(), "launches"_a = 1,
        nb::sig("def plan_session(machine: Machine, *, experiments: typing.Sequence[str] = (), "
                "only: typing.Mapping[str, int | str | typing.Sequence[int | str]] = {}, budget: "
                "float | None = 60.0, directory: str | os.PathLike[str] = '.', known: "
                "typing.Sequence[Row] = (), rounds: int | None = None, launches: int = 1) -> "
                "list[PlannedPoint]"),
        "The plan of measure(), without measuring anything; also for a machine that is not this "
        "host.");
  m.def("measure_quickly", &run_quick_session, "machine"_a, "directory"_a, nb::kw_only(),
        "stop"_a = nb::none(), "progress"_a = nb::none(),
        nb::sig("def measure_quickly(machine: Machine, directory: str | os.PathLike[str], *, stop: "
                "typing.Callable[[], bool] | None = None, progress: typing.Callable[[int, int], "
                "object] | None = None) -> Profile"),
        "A quick session of some seconds: memory, copies, and the disk behind `directory`.");
}

void bind_statistics(nb::module_& m) {
  Record<Interval>(m, "Interval", "Between low and high.")
      .field("low", &Interval::low, "")
      .field("high", &Interval::high, "");
  Record<Summary>(m, "Summary", "Centre and spread of repeated measurements.")
      .field("runs", &Summary::runs, "Samples.")
      .field("median", &Summary::median, "Ignores up to half of the samples being disturbed.")
      .field("mad", &Summary::mad, "Median absolute deviation, unscaled.")
      .field("min", &Summary::min, "")
      .field("max", &Summary::max, "")
      .field("interval", &Summary::interval,
             "An interval of the median by `coverage`, or a range of few samples.")
      .field("coverage", &Summary::coverage,
             "The stated chance that `interval` holds the true median; None: fewer than six runs.")
      .field("launches", &Summary::launches, "Number of launches with these runs.")
      .computed("interval_words", &interval_words,
                "The meaning of `interval`: '95 %', 'range of 3'.");
  m.def(
      "summarize", [](const std::vector<double>& samples) { return summarize(samples); },
      "samples"_a, "The summary, or None for no samples.");
  m.def(
      "format_bytes", [](Bytes bytes) { return to_string(bytes); }, "bytes"_a,
      "64 KiB, 1.5 GiB: binary multiples.");
  m.def(
      "format_rate", [](BytesPerSecond rate) { return to_string(rate); }, "bytes_per_second"_a,
      "24.1 GB/s: decimal multiples.");
}

UnifiedMemoryGpu gpu_of(const Machine& machine, unsigned device) {
  const Machine asked = machine;  // so that Python may change the machine meanwhile
  return unwrap(without_gil([&] { return unified_memory_gpu(asked, device); }));
}

// A GPU that shares memory with the host.
void bind_shared_gpu(nb::module_& m) {
  Record<UnifiedMemoryGpu>(m, "UnifiedMemoryGpu", "A GPU for measurements of Unified Memory.")
      .field("name", &UnifiedMemoryGpu::name, "Its name.")
      .field("capacity", &UnifiedMemoryGpu::capacity, "Bytes.")
      .field("managed_bytes", &UnifiedMemoryGpu::managed_bytes,
             "The most managed memory that is not oversubscribed now.")
      .computed(
          "paradigm",
          [](const UnifiedMemoryGpu& self) { return std::string(to_string(self.paradigm)); },
          "How the GPU reaches host memory: ats, hmm, managed, limited.");
  m.def("unified_memory_gpu", &gpu_of, "machine"_a, "device"_a = 0,
        "The GPU of this host with the driver's number `device`.");
}

struct StreamViews {
  StreamViews(nb::handle first, nb::handle second, nb::handle third)
      : a(first, PyBUF_WRITABLE), b(second, PyBUF_WRITABLE), c(third, PyBUF_WRITABLE) {}
  StreamArrays arrays() const { return {a.as<double>(), b.as<double>(), c.as<double>()}; }
  View a, b, c;
};

void bind_stream(nb::module_& m) {
  Record<StreamRun>(m, "StreamRun", "One repetition of a kernel of STREAM.")
      .field("bytes", &StreamRun::bytes,
             "Bytes as STREAM counts them: without fetching lines before stores.")
      .field("seconds", &StreamRun::time, "From the first thread's start to the last one's end.")
      .field("cpu_share", &StreamRun::cpu_share,
             "The share of `seconds` in which threads ran on their CPUs.");
  m.def("stream_kernels", &stream_kernels, "Names of the kernels of STREAM.");
  m.def(
      "stream_fill",
      [](nb::handle a, nb::handle b, nb::handle c, const CpuSet& cpus) {
        const StreamViews views(a, b, c);
        const StreamArrays arrays = views.arrays();
        unwrap(without_gil([&] { return stream_fill(arrays, cpus); }));
      },
      "a"_a, "b"_a, "c"_a, "cpus"_a,
      nb::sig("def stream_fill(a: typing_extensions.Buffer, b: typing_extensions.Buffer, c: "
              "typing_extensions.Buffer, cpus: typing.Sequence[int]) -> None"),
      "Fills the arrays for the next repetition, with a thread on each CPU.");
  m.def(
      "stream_run",
      [](const std::string& kernel, nb::handle a, nb::handle b, nb::handle c, const CpuSet& cpus) {
        const StreamViews views(a, b, c);
        const StreamArrays arrays = views.arrays();
        return unwrap(without_gil([&] { return stream_run(kernel, arrays, cpus); }));
      },
      "kernel"_a, "a"_a, "b"_a, "c"_a, "cpus"_a,
      nb::sig("def stream_run(kernel: str, a: typing_extensions.Buffer, b: "
              "typing_extensions.Buffer, c: typing_extensions.Buffer, cpus: "
              "typing.Sequence[int]) -> StreamRun"),
      "One repetition after stream_fill(). Then checks the arrays. IoError: a wrong result.");
}

}  // namespace

void bind_measure(nb::module_& m) {
  bind_backends(m);
  bind_copy(m);
  bind_experiments(m);
  bind_sessions(m);
  bind_statistics(m);
  bind_stream(m);
  bind_shared_gpu(m);
}

}  // namespace headrace::python
