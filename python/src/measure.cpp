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
      .field("note", &Capabilities::note, "In words.");
  nb::class_<Backends>(m, "Backends", "What drives the engines of a machine, here and now.")
      .def_static(
          "open",
          [](const Machine& machine) {
            return unwrap(without_gil([&] { return Backends::open(machine); }));
          },
          "machine"_a, "Opens all that work here.")
      .def_prop_ro(
          "capabilities",
          [](const Backends& self) {
            std::vector<Capabilities> facts;
            for (const auto& backend : self.all()) facts.push_back(backend->capabilities());
            return facts;
          },
          "Facts about each.")
      .def_prop_ro(
          "skipped", [](const Backends& self) { return self.skipped(); },
          "Engines nobody drives here, each with the reason.");
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
      .field("name", &ParameterInfo::name, "As rows and `only` have it.")
      .field("kind", &ParameterInfo::kind, "What values it has.")
      .field("required", &ParameterInfo::required,
             "False: profiles of others and of older versions may lack it.");
  Record<ExperimentInfo>(m, "ExperimentInfo", "What measure() can measure.")
      .field("name", &ExperimentInfo::name, "As measure() takes it.")
      .field("description", &ExperimentInfo::description, "One line.")
      .field("parameters", &ExperimentInfo::parameters, "Those of its rows, in their order.")
      .field("details", &ExperimentInfo::details, "That each of its rows with a number has.");
  m.def("experiments", &experiments, "All experiments, in their order.");
}

void bind_sessions(nb::module_& m) {
  m.def("measure", &run_measure, "machine"_a, nb::kw_only(),
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
        "Measures this host. Only points with the parameters of `only` are rows, any of several "
        "values; a node may be given by its kind. `selections` are pairs of an experiment and such "
        "parameters, in the place of these two. `directory` is on the disk that `storage` "
        "measures. `budget` is in "
        "seconds, None for everything until it is certain; "
        "`width` the part of the median that its 95 % interval may be wide; rows of `known` with a "
        "number are kept. Each point is measured `rounds` times, if given, on fresh memory, each "
        "time by `repetitions` of which the middle one counts. Of `launches` that are merged each "
        "measures a point twice without a budget, and once what is wanted last. `stop` is asked "
        "between points; "
        "when it says True the rows so far are returned.");
  Record<PlannedPoint>(m, "PlannedPoint", "A point as measure() would begin.")
      .field("row", &PlannedPoint::row, "Without a number; with a reason if it is not measured.")
      .field("time", &PlannedPoint::time, "Estimated seconds in all; 0 if it is not measured.")
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
        "What measure() would do, without measuring anything; also of a machine that is not this "
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
      .field("interval", &Summary::interval, "Of the median, by `coverage`; else a range.")
      .field("coverage", &Summary::coverage,
             "The stated chance that `interval` holds the true median; None: fewer than six runs.")
      .field("launches", &Summary::launches, "That the runs are of.")
      .computed("interval_words", &interval_words, "What `interval` is: '95 %', 'range of 3'.");
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
  Record<UnifiedMemoryGpu>(m, "UnifiedMemoryGpu", "A GPU to measure on.")
      .field("name", &UnifiedMemoryGpu::name, "Its name.")
      .field("capacity", &UnifiedMemoryGpu::capacity, "Bytes.")
      .field("managed_bytes", &UnifiedMemoryGpu::managed_bytes,
             "The most managed memory that is not oversubscribed now.")
      .computed(
          "paradigm",
          [](const UnifiedMemoryGpu& self) { return std::string(to_string(self.paradigm)); },
          "How it reaches memory of the host: ats, hmm, managed, limited.");
  m.def("unified_memory_gpu", &gpu_of, "machine"_a, "device"_a = 0,
        "That of this host by the driver's number.");
}

struct StreamViews {
  StreamViews(nb::handle first, nb::handle second, nb::handle third)
      : a(first, PyBUF_WRITABLE), b(second, PyBUF_WRITABLE), c(third, PyBUF_WRITABLE) {}
  StreamArrays arrays() const { return {a.as<double>(), b.as<double>(), c.as<double>()}; }
  View a, b, c;
};

void bind_stream(nb::module_& m) {
  Record<StreamRun>(m, "StreamRun", "One repetition of a kernel of STREAM.")
      .field("bytes", &StreamRun::bytes, "As STREAM counts: stores not fetched first.")
      .field("seconds", &StreamRun::time, "From the first thread's start to the last one's end.")
      .field("cpu_share", &StreamRun::cpu_share, "The part of it in which threads had their CPUs.");
  m.def("stream_kernels", &stream_kernels, "Their names.");
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
      "What the arrays must hold before each repetition, written by a thread on each CPU.");
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
      "One repetition after stream_fill(), and a look at what it left (IoError).");
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
