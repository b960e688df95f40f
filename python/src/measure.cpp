// Backends as facts, copying with the calling core, and the experiments.
#include <nanobind/stl/map.h>
#include <nanobind/stl/variant.h>

#include "handles.h"
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
             "Bytes; smaller pieces cost more than they carry.")
      .field("inline_below", &Capabilities::inline_below,
             "Bytes; smaller pieces are copied at once.")
      .field("note", &Capabilities::note, "In words.");
  nb::class_<Backends>(m, "Backends", "What drives the engines of a machine, here and now.")
      .def_static(
          "open",
          [](const Machine& machine) {
            auto backends = [&] {
              const nb::gil_scoped_release release;
              return Backends::open(machine);
            }();
            return unwrap(std::move(backends));
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
  const nb::gil_scoped_release release;
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

std::vector<CopyRow> run_bench_copy(const Machine& machine, std::vector<Bytes> sizes,
                                    std::vector<unsigned> threads, std::vector<std::string> engines,
                                    bool cold, bool hot, unsigned rounds, Nanoseconds per_sample,
                                    nb::object stop, nb::object progress) {
  const CopyBenchOptions options{.sizes = std::move(sizes),
                                 .threads = std::move(threads),
                                 .engines = std::move(engines),
                                 .cold = cold,
                                 .hot = hot,
                                 .rounds = rounds,
                                 .per_sample = per_sample};
  Interruptible callbacks(std::move(stop), std::move(progress));
  auto rows = [&] {
    const nb::gil_scoped_release release;
    return bench_copy(machine, options, callbacks.context());
  }();
  callbacks.rethrow();
  return unwrap(std::move(rows));
}

std::vector<RateRow> run_measure_briefly(nb::handle machine, const std::filesystem::path& directory,
                                         nb::object stop, nb::object progress) {
  // Measured on a copy, so that Python may read the machine meanwhile.
  Machine measured = nb::cast<const Machine&>(machine);
  Interruptible callbacks(std::move(stop), std::move(progress));
  auto rows = [&]() -> Result<std::vector<RateRow>> {
    const nb::gil_scoped_release release;
    auto backends = Backends::open(measured);
    if (!backends) return std::unexpected(std::move(backends).error());
    return measure_briefly(measured, *backends, directory, callbacks.context());
  }();
  callbacks.rethrow();
  auto result = unwrap(std::move(rows));
  nb::cast<Machine&>(machine).copy_rates = std::move(measured.copy_rates);
  return result;
}

Profile run_measure(const Machine& machine, std::vector<std::string> names,
                    std::map<std::string, ParameterValue> only, std::optional<Nanoseconds> budget,
                    double width, std::uint64_t seed, const std::filesystem::path& directory,
                    std::vector<Row> known, nb::object stop, nb::object progress) {
  const MeasureOptions options{.experiments = std::move(names),
                               .only = std::move(only),
                               .directory = directory,
                               .budget = budget,
                               .width = width,
                               .seed = seed,
                               .known = std::move(known)};
  const Machine measured = machine;  // so that Python may change the machine meanwhile
  Interruptible callbacks(std::move(stop), std::move(progress));
  auto profile = [&] {
    const nb::gil_scoped_release release;
    return measure(measured, options, callbacks.context());
  }();
  callbacks.rethrow();
  return unwrap(std::move(profile));
}

void bind_sessions(nb::module_& m) {
  Record<ExperimentInfo>(m, "ExperimentInfo", "What measure() can measure.")
      .field("name", &ExperimentInfo::name, "As measure() takes it.")
      .field("description", &ExperimentInfo::description, "One line.");
  m.def("experiments", &experiments, "All experiments, in their order.");
  m.def("measure", &run_measure, "machine"_a, nb::kw_only(),
        "experiments"_a = std::vector<std::string>{},
        "only"_a = std::map<std::string, ParameterValue>{}, "budget"_a = 60.0, "width"_a = 0.03,
        "seed"_a = 1, "directory"_a = std::filesystem::path("."), "known"_a = std::vector<Row>{},
        "stop"_a = nb::none(), "progress"_a = nb::none(),
        nb::sig("def measure(machine: Machine, *, experiments: typing.Sequence[str] = (), only: "
                "typing.Mapping[str, int | str] = {}, budget: "
                "float | None = 60.0, width: float = 0.03, seed: int = 1, directory: "
                "str | os.PathLike[str] = '.', known: "
                "typing.Sequence[Row] = (), stop: typing.Callable[[], bool] | None = None, "
                "progress: typing.Callable[[int, int], object] | None = None) -> Profile"),
        "Measures this host. Only points with the parameters of `only` are rows; a node may be "
        "given by its kind. `directory` is on the disk that `storage` measures. `budget` is in "
        "seconds, None for everything until it is certain; "
        "`width` the part of the median that its 95 % interval may be wide; rows of `known` with a "
        "number are kept. `stop` is asked between points; when it says True the rows so far are "
        "returned.");
}

void bind_experiments(nb::module_& m) {
  Record<CopyRow>(m, "CopyRow", "One point of bench_copy(): a rate, or the reason why not.")
      .field("engine", &CopyRow::engine, "cpu, memcpy, or one kernel.")
      .field("bytes", &CopyRow::bytes, "Of one copy.")
      .field("threads", &CopyRow::threads, "At once.")
      .field("state", &CopyRow::state, "cold or hot.")
      .field("bytes_per_second", &CopyRow::bytes_per_second,
             "Payload, median; None if not measured.")
      .field("spread", &CopyRow::spread, "MAD / median.")
      .field("ratio_to_memcpy", &CopyRow::ratio_to_memcpy, "Median over interleaved rounds.")
      .field("reason", &CopyRow::reason, "Why there is no number.");
  Record<RateRow>(m, "RateRow", "One rate of measure_briefly(), or the reason why not.")
      .field("what", &RateRow::what, "What was measured.")
      .field("where", &RateRow::where, "On which node or device, and how.")
      .field("from_node", &RateRow::from, "Where the bytes were.")
      .field("to_node", &RateRow::to, "Where they went.")
      .field("engine", &RateRow::engine, "Who copied.")
      .field("bytes_per_second", &RateRow::bytes_per_second, "Payload, median.")
      .field("spread", &RateRow::spread, "MAD / median.")
      .field("reason", &RateRow::reason, "Why there is no number.");
  m.def(
      "bench_copy", &run_bench_copy, "machine"_a, nb::kw_only(), "sizes"_a = std::vector<Bytes>{},
      "threads"_a = std::vector<unsigned>{1}, "engines"_a = std::vector<std::string>{},
      "cold"_a = true, "hot"_a = true, "rounds"_a = 7, "per_sample"_a = 0.02, "stop"_a = nb::none(),
      "progress"_a = nb::none(),
      nb::sig("def bench_copy(machine: Machine, *, sizes: typing.Sequence[int] = (), threads: "
              "typing.Sequence[int] = (1,), engines: typing.Sequence[str] = (), cold: bool = "
              "True, hot: bool = True, rounds: int = 7, per_sample: float = 0.02, stop: "
              "typing.Callable[[], bool] | None = None, progress: typing.Callable[[int, int], "
              "object] | None = None) -> list[CopyRow]"),
      "Copy rates by size, cold and hot, interleaved with glibc's memcpy. `stop` is asked between "
      "points; when it says True the rows so far are returned.");
  m.def("measure_briefly", &run_measure_briefly, "machine"_a, "directory"_a, nb::kw_only(),
        "stop"_a = nb::none(), "progress"_a = nb::none(),
        nb::sig("def measure_briefly(machine: Machine, directory: str | os.PathLike[str], *, stop: "
                "typing.Callable[[], bool] | None = None, progress: typing.Callable[[int, int], "
                "object] | None = None) -> list[RateRow]"),
        "A few seconds' look at memory and disk; adds copy rates to `machine`.");
}

std::vector<DsaRow> run_bench_dsa(const Machine& machine, std::vector<std::string> names,
                                  bool emulated, std::vector<Bytes> sizes, unsigned rounds,
                                  nb::object stop, nb::object progress) {
  const DsaBenchOptions options{.experiments = std::move(names),
                                .emulated = emulated,
                                .sizes = std::move(sizes),
                                .rounds = rounds};
  const Machine measured = machine;  // so that Python may change the machine meanwhile
  Interruptible callbacks(std::move(stop), std::move(progress));
  auto rows = [&] {
    const nb::gil_scoped_release release;
    return bench_dsa(measured, options, callbacks.context());
  }();
  callbacks.rethrow();
  return unwrap(std::move(rows));
}

void bind_dsa_row(nb::module_& m) {
  Record<DsaRow>(m, "DsaRow", "One point of bench_dsa(): a rate, or the reason why not.")
      .field("experiment", &DsaRow::experiment, "One of dsa_experiments().")
      .field("method", &DsaRow::method, "single, batch, vectored; cores; stream.")
      .field("bytes", &DsaRow::bytes, "Of one copy; by a route, of all parts.")
      .field("threads", &DsaRow::threads, "That hand copies over; cores that copy.")
      .field("at_once", &DsaRow::at_once, "Copies handed over together.")
      .field("window", &DsaRow::window, "The most copies of a thread under way.")
      .field("copies", &DsaRow::copies, "By all threads.")
      .field("route", &DsaRow::route, "one, brute_force, smart; cores.")
      .field("from_node", &DsaRow::from, "Where the bytes were.")
      .field("to_node", &DsaRow::to, "Where they went.")
      .field("engines", &DsaRow::engines, "Devices that copied.")
      .field("free_engines", &DsaRow::free_engines, "Devices left for others.")
      .field("queue", &DsaRow::queue, "shared or dedicated; empty without a device.")
      .field("portal", &DsaRow::portal, "ENQCMD, MOVDIR64B or write().")
      .field("group_engines", &DsaRow::group_engines, "Engines that serve the queue.")
      .field("beside", &DsaRow::beside, "What else ran; empty: nothing.")
      .field("bytes_per_second", &DsaRow::bytes_per_second, "Payload, median; None without one.")
      .field("spread", &DsaRow::spread, "MAD / median; None of a model.")
      .field("basis", &DsaRow::basis, "hardware or modelled.")
      .field("machine", &DsaRow::machine, "Whose devices or cores these are.")
      .field("reason", &DsaRow::reason, "Why there is no number.");
}

void bind_bench_dsa(nb::module_& m) {
  bind_dsa_row(m);
  m.def("dsa_experiments", &dsa_experiments, "What bench_dsa() can run, in its order.");
  m.def("bench_dsa", &run_bench_dsa, "machine"_a, nb::kw_only(),
        "experiments"_a = std::vector<std::string>{}, "emulated"_a = false,
        "sizes"_a = std::vector<Bytes>{}, "rounds"_a = 3, "stop"_a = nb::none(),
        "progress"_a = nb::none(),
        nb::sig("def bench_dsa(machine: Machine, *, experiments: typing.Sequence[str] = (), "
                "emulated: bool = False, sizes: typing.Sequence[int] = (), rounds: int = 3, stop: "
                "typing.Callable[[], bool] | None = None, progress: typing.Callable[[int, int], "
                "object] | None = None) -> list[DsaRow]"),
        "The DSA experiments, on this host's devices or on a model of the machine's. `stop` is "
        "asked between points; when it says True the rows so far are returned.");
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
      .field("interval95", &Summary::interval95, "Percentile bootstrap of the median.");
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

}  // namespace

void bind_measure(nb::module_& m) {
  bind_backends(m);
  bind_copy(m);
  bind_experiments(m);
  bind_bench_dsa(m);
  bind_sessions(m);
  bind_statistics(m);
}

}  // namespace headrace::python
