// SPDX-License-Identifier: Apache-2.0
// Profiles and what is computed from them (findings, comparisons): plain data, copied between C++
// and Python.
#include <nanobind/stl/variant.h>

#include "headrace/findings.h"

#include "document.h"
#include "handles.h"
#include "profile/profile.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

using Parameters = nb::typed<nb::dict, std::string, ParameterValue>;

Parameters parameters_of(const Row& row) {
  Parameters parameters;
  for (const auto& [name, value] : row.parameters) {
    std::visit([&](const auto& v) { parameters[name.c_str()] = v; }, value);
  }
  return parameters;
}

// One number of the row's summary; None if the row has no summary.
template <double Summary::* member>
std::optional<double> number(const Row& row) {
  return row.value ? std::optional(*row.value.*member) : std::nullopt;
}

template <double Interval::* member>
std::optional<double> bound(const Row& row) {
  return row.value ? std::optional(row.value->interval.*member) : std::nullopt;
}

std::optional<std::string> interval_of(const Row& row) {
  return row.value ? std::optional(interval_words(*row.value)) : std::nullopt;
}

void bind_row(nb::module_& m) {
  Record<Row>(
      m, "Row",
      "One point of one experiment: a number with its spread, or the reason why there is none.")
      .field("experiment", &Row::experiment, "latency, bandwidth, ...")
      .computed("parameters", &parameters_of,
                "Parameters of this point, in the experiment's order.")
      .field("unit", &Row::unit, "The unit of the number: ns, B/s.")
      .computed("median", &number<&Summary::median>, "Median of the samples; None if not measured.")
      .computed("mad", &number<&Summary::mad>, "Median absolute deviation, unscaled.")
      .computed("min", &number<&Summary::min>, "The least sample.")
      .computed("max", &number<&Summary::max>, "The largest sample.")
      .computed("low", &bound<&Interval::low>, "The lower end of `interval`.")
      .computed("high", &bound<&Interval::high>, "The upper end of `interval`.")
      .computed("interval", &interval_of,
                "The meaning of low and high. '95 %' or '95 % of 6 launches': an interval of the "
                "median. 'range of 3': fewer than six samples.")
      .field("samples", &Row::samples, "One per mapping of memory.")
      .field("launches", &Row::launches, "How many samples each launch gave; empty: one launch.")
      .field("details", &Row::details, "Further numbers; the experiment says which.")
      .field("words", &Row::words, "Further facts, such as the kernel that measured it.")
      .field("flags", &Row::flags,
             "noisy, few, shrunk, side_cached, cpu_limited, throttled, cache_doubted, not_huge, "
             "unsteady, "
             "fitted; without a number: absent, left_out, stopped.")
      .field("basis", &Row::basis, "The basis of the number; a profile has no modelled row.")
      .field("reason", &Row::reason, "Why there is no number.")
      .field("source", &Row::source, "Where a published number comes from; empty: measured here.")
      .field("stands_for", &Row::stands_for,
             "Parameters of points of alike nodes that were not measured for it.")
      .field("cpus", &Row::cpus, "The CPUs that its threads ran on: '0-3,8'; empty: not chosen.")
      .type()
      .def_static(
          "fromdict", [](const Dict& document) { return unwrap(read_row(document_of(document))); },
          "document"_a, "The row that asdict() wrote.")
      .def_prop_ro("key", &Row::key,
                   "Experiment and parameters: the same for the same point of two profiles.");
}

void bind_profile_class(nb::module_& m) {
  nb::class_<Profile>(m, "Profile",
                      "A machine with its measured rows: one JSON document, which Machine.load() "
                      "reads as well. Plain data.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) { return unwrap(Profile::load(path.string())); },
          "path_or_preset"_a,
          "Reads a file or a preset, like Machine.load(). A machine's document is a profile "
          "without rows.")
      .def_static(
          "from_json", [](std::string_view text) { return unwrap(Profile::from_json(text)); },
          "text"_a, "Parses what to_json() wrote.")
      .def_static(
          "fromdict",
          [](const Dict& document) { return unwrap(read_profile(document_of(document))); },
          "document"_a, "The profile that asdict() wrote, or json.load() read.")
      .def("to_json", &Profile::to_json, "One JSON document, schema_version first.")
      .def(
          "asdict", [](const Profile& self) { return dict_of(json_of(self)); },
          "The contents of to_json() as a dict.")
      .def(
          "save",
          [](const Profile& self, const std::filesystem::path& path) {
            // As all results of this package are written, not as C++ does: it knows sys.stdout.
            call_function("headrace._files", "write_whole", nb::make_tuple(path, self.to_json()));
          },
          "path"_a, "Replaces the file atomically: a reader sees the old or the new contents.")
      .def_prop_ro(
          "machine", [](const Profile& self) { return self.machine; },
          "The machine that was measured.")
      .def_prop_ro(
          "rows", [](const Profile& self) { return self.rows; },
          "The rows, in the order of measuring.")
      .def_ro("conditions", &Profile::conditions, "How and when: date, version, seed, ...")
      .def_prop_ro("published", &Profile::published,
                   "Whether some of its numbers are published, not measured.")
      .def("__repr__", [](const Profile& self) {
        return "Profile(" + self.machine.name + ": " + std::to_string(self.rows.size()) + " rows)";
      });
}

// A getter of one field of the owner's `series`.
template <class T, class Number>
auto of_series(Number CopySeries::* member) {
  return [member](const T& self) { return self.series.*member; };
}

template <class T>
Record<T> bind_series(nb::module_& m, const char* name, const char* doc) {
  return Record<T>(m, name, doc)
      .computed("cpu_node", of_series<T>(&CopySeries::cpu_node), "The node whose CPUs copied.")
      .computed("from_node", of_series<T>(&CopySeries::from), "Where the bytes were.")
      .computed("to_node", of_series<T>(&CopySeries::to), "Where they were copied to.")
      .computed("threads", of_series<T>(&CopySeries::threads),
                "Number of threads that copied at once.")
      .computed("state", of_series<T>(&CopySeries::state), "cold or hot.");
}

void bind_findings(nb::module_& m) {
  bind_series<CopyFit>(m, "CopyFit", "T(V) = latency + V / bandwidth over the sizes of a copy.")
      .field("engine", &CopyFit::engine, "cpu, memcpy, or one kernel.")
      .field("latency_ns", &CopyFit::latency_ns, "Never below zero.")
      .field("bandwidth", &CopyFit::bandwidth, "Bytes per second of all threads.")
      .field("points", &CopyFit::points, "The number of sizes.")
      .field("median_error", &CopyFit::median_error, "Median of |fitted / measured - 1|.")
      .field("largest_error", &CopyFit::largest_error, "The largest |fitted / measured - 1|.");
  bind_series<Crossover>(m, "Crossover", "From this size on another engine copies fastest.")
      .field("bytes", &Crossover::bytes, "The first measured size.")
      .field("engine", &Crossover::engine, "cpu or memcpy.");
  Record<Knee>(m, "Knee", "Where a curve of loaded latency bends: most bandwidth per latency.")
      .field("cpu_node", &Knee::cpu_node, "The node whose CPU observes the latency.")
      .field("memory_node", &Knee::memory_node, "The node of the memory that it reads.")
      .field("traffic_cpu_node", &Knee::traffic_cpu_node, "The node whose CPUs make the traffic.")
      .field("traffic_memory_node", &Knee::traffic_memory_node,
             "The node of the memory that the traffic uses.")
      .field("mix", &Knee::mix, "The mix of reads and writes of the traffic.")
      .field("threads", &Knee::threads,
             "Threads of traffic, if a number was asked for; 0: one on each CPU of its node.")
      .field("bandwidth", &Knee::bandwidth, "Bytes per second of the traffic at the knee.")
      .field("latency_ns", &Knee::latency_ns, "The latency at the knee.")
      .field("idle_ns", &Knee::idle_ns, "The latency without traffic, or with the least.")
      .field("bandwidth_at_1_5", &Knee::bandwidth_at_1_5,
             "Bytes per second of the traffic at 1.5 times the idle latency; None if the latency "
             "stays lower.")
      .field("bandwidth_at_2", &Knee::bandwidth_at_2,
             "Bytes per second of the traffic at twice the idle latency.");
  Record<CacheStep>(m, "CacheStep", "A plateau of latency against working-set size.")
      .field("cpu_node", &CacheStep::cpu_node, "The node whose CPU read.")
      .field("memory_node", &CacheStep::memory_node, "The node of the memory that it read.")
      .field("name", &CacheStep::name, "L1, L2, ..., memory.")
      .field("from_size", &CacheStep::from, "The smallest size measured on it, in bytes.")
      .field("to_size", &CacheStep::to, "The largest size measured on it, in bytes.")
      .field("latency_ns", &CacheStep::latency_ns, "Median latency over these sizes.");
  m.def("copy_fits", &copy_fits, "profile"_a,
        "A fit for each series and engine with three sizes or more.");
  m.def("crossovers", &crossovers, "profile"_a,
        "Sizes from which cpu or memcpy is clearly faster. The first of a series is the smallest "
        "size of both.");
  m.def("knees", &knees, "profile"_a,
        "The knee of each curve with four quiet points or more, of three mappings each, whose "
        "latency does not fall as the traffic grows.");
  m.def("cache_steps", &cache_steps, "profile"_a,
        "The steps of each pair of nodes, from small to large.");
  m.def(
      "merge", [](const std::vector<Profile>& launches) { return unwrap(merge(launches)); },
      "launches"_a, "Several launches of one measurement as one profile: all samples together.");
}

// One profile, or several runs.
using Runs = std::variant<Profile, std::vector<Profile>>;

std::vector<Profile> runs_of(const Runs& runs) {
  if (const auto* one = std::get_if<Profile>(&runs)) return {*one};
  return std::get<std::vector<Profile>>(runs);
}

void bind_comparison(nb::module_& m) {
  Record<Difference>(m, "Difference", "One point of two profiles.")
      .field("key", &Difference::key, "Experiment and parameters.")
      .field("unit", &Difference::unit, "The unit of both values.")
      .field("in_caches", &Difference::in_caches,
             "Whether this is a cache row; they are judged separately from memory.")
      .field("outcome", &Difference::outcome,
             "changed: by more than noise; noisy, too_few, other_pages, inconclusive: not judged.")
      .field("old_value", &Difference::old_value,
             "Median, of several runs the geometric mean of them; None if not measured.")
      .field("new_value", &Difference::new_value, "As old_value.")
      .field("ratio", &Difference::ratio, "new / old.")
      .field("threshold", &Difference::threshold, "A larger |ln(ratio)| is a change.")
      .field("old_runs", &Difference::old_runs, "Number of runs in old_value.")
      .field("new_runs", &Difference::new_runs, "Number of runs in new_value.");
  Record<Shift>(m, "Shift", "The common change of all rows of one experiment.")
      .field("experiment", &Shift::experiment, "latency, bandwidth, ...")
      .field("in_caches", &Shift::in_caches, "Whether it covers the cache rows, or all other rows.")
      .field("rows", &Shift::rows, "Number of rows that were judged.")
      .field("ratio", &Shift::ratio, "Median of new / old.")
      .field("threshold", &Shift::threshold, "A larger |ln(ratio)| is a change.")
      .field("changed", &Shift::changed,
             "Beyond the threshold, and judged by at least five rows; with several runs, by two.");
  Record<Comparison>(m, "Comparison", "Differences between two profiles.")
      .field(
          "rows", &Comparison::rows,
          "Differences in the order of the old profile, then rows that only the new profile has.")
      .field("shifts", &Comparison::shifts, "One per experiment.")
      .computed("changed", &Comparison::changed, "Whether any row or any experiment changed.")
      .computed("inconclusive", &Comparison::inconclusive,
                "No change is certain, but more than a tenth of the rows are inconclusive.")
      .computed("judged", &Comparison::judged, "Number of rows that were judged.")
      .computed("expected", &Comparison::expected, "Number of rows with an old value.");
  m.def(
      "compare",
      [](const Runs& before, const Runs& after, double least) {
        if (!(least >= 0 && std::isfinite(least))) {
          raise(ErrorCode::invalid, "least must be 0 or more; 0.05 is 5 %");
        }
        const std::vector<Profile> old_runs = runs_of(before), new_runs = runs_of(after);
        if (old_runs.empty() || new_runs.empty()) {
          raise(ErrorCode::invalid, "a side without profiles; give at least one of each");
        }
        const GilRelease release;
        return compare(old_runs, new_runs, {.least = least});
      },
      "before"_a, "after"_a, "least"_a = 0.05,
      "Finds differences beyond noise that are at least `least`, a share of the old value. A side "
      "may be several profiles, runs of the same machine: then noise is the difference between "
      "these runs.");
}

}  // namespace

void bind_profile(nb::module_& m) {
  bind_row(m);
  bind_profile_class(m);
  bind_findings(m);
  bind_comparison(m);
}

}  // namespace headrace::python
