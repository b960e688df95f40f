// What was measured on a machine, and what differs between two measurements: plain data, copied at
// the border.
#include <nanobind/stl/variant.h>

#include "headrace/findings.h"

#include "handles.h"
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

// A number of the row's summary; None without one.
template <double Summary::* member>
std::optional<double> number(const Row& row) {
  return row.value ? std::optional(*row.value.*member) : std::nullopt;
}

template <double Interval::* member>
std::optional<double> bound(const Row& row) {
  return row.value ? std::optional(row.value->interval95.*member) : std::nullopt;
}

void bind_row(nb::module_& m) {
  Record<Row>(m, "Row", "One point of one experiment: a number with its spread, or why not.")
      .field("experiment", &Row::experiment, "latency, bandwidth, ...")
      .computed("parameters", &parameters_of, "What was set, in the experiment's order.")
      .field("unit", &Row::unit, "Of the number: ns, B/s.")
      .computed("median", &number<&Summary::median>, "Over the samples; None if not measured.")
      .computed("mad", &number<&Summary::mad>, "Median absolute deviation, unscaled.")
      .computed("min", &number<&Summary::min>, "The least sample.")
      .computed("max", &number<&Summary::max>, "The largest sample.")
      .computed("low", &bound<&Interval::low>, "Of the median's 95 % interval.")
      .computed("high", &bound<&Interval::high>, "Of the median's 95 % interval.")
      .field("samples", &Row::samples, "One per mapping of memory.")
      .field("details", &Row::details, "Further numbers; the experiment says which.")
      .field("flags", &Row::flags, "noisy: measured while something else ran.")
      .field("reason", &Row::reason, "Why there is no number.")
      .field("source", &Row::source, "Where a published number comes from; empty: measured here.")
      .type()
      .def_prop_ro("key", &Row::key,
                   "Experiment and parameters: the same for the same point of two profiles.");
}

void bind_profile_class(nb::module_& m) {
  nb::class_<Profile>(m, "Profile",
                      "A machine with what was measured on it: one JSON document that is also the "
                      "machine's. Plain data.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) { return unwrap(Profile::load(path.string())); },
          "path_or_preset"_a,
          "Reads a file, or a machine that comes with Headrace, as Machine.load does; a machine's "
          "document is a profile without rows.")
      .def_static(
          "from_json", [](std::string_view text) { return unwrap(Profile::from_json(text)); },
          "text"_a, "Parses what to_json() wrote.")
      .def("to_json", &Profile::to_json, "One JSON document, schema_version first.")
      .def(
          "save",
          [](const Profile& self, const std::filesystem::path& path) { unwrap(self.save(path)); },
          "path"_a, "Replaces the file at once: a reader sees the old one or the new one.")
      .def_prop_ro(
          "machine", [](const Profile& self) { return self.machine; }, "What it was measured on.")
      .def_prop_ro(
          "rows", [](const Profile& self) { return self.rows; }, "In the order of measuring.")
      .def_ro("conditions", &Profile::conditions, "How and when: date, version, seed, ...")
      .def_prop_ro("published", &Profile::published, "Some of its numbers come from others.")
      .def("__repr__", [](const Profile& self) {
        return "Profile(" + self.machine.name + ": " + std::to_string(self.rows.size()) + " rows)";
      });
}

// `series` as fields of its owner.
template <class T, class Number>
auto of_series(Number CopySeries::* member) {
  return [member](const T& self) { return self.series.*member; };
}

template <class T>
Record<T> bind_series(nb::module_& m, const char* name, const char* doc) {
  return Record<T>(m, name, doc)
      .computed("cpu_node", of_series<T>(&CopySeries::cpu_node), "Whose CPUs copied.")
      .computed("from_node", of_series<T>(&CopySeries::from), "Where the bytes were.")
      .computed("to_node", of_series<T>(&CopySeries::to), "Where they went.")
      .computed("threads", of_series<T>(&CopySeries::threads), "At once.")
      .computed("state", of_series<T>(&CopySeries::state), "cold or hot.");
}

void bind_findings(nb::module_& m) {
  bind_series<CopyFit>(m, "CopyFit", "T(V) = latency + V / bandwidth over the sizes of a copy.")
      .field("engine", &CopyFit::engine, "cpu, memcpy, or one kernel.")
      .field("latency_ns", &CopyFit::latency_ns, "Never below zero.")
      .field("bandwidth", &CopyFit::bandwidth, "Bytes per second of all threads.")
      .field("points", &CopyFit::points, "Sizes.")
      .field("median_error", &CopyFit::median_error, "Of |fitted / measured - 1|.")
      .field("largest_error", &CopyFit::largest_error, "The same, at worst.");
  bind_series<Crossover>(m, "Crossover", "From this size on another engine copies fastest.")
      .field("bytes", &Crossover::bytes, "The first measured size.")
      .field("engine", &Crossover::engine, "cpu or memcpy.");
  Record<Knee>(m, "Knee", "Where a curve of loaded latency bends: most bandwidth per latency.")
      .field("cpu_node", &Knee::cpu_node, "Of the observer.")
      .field("memory_node", &Knee::memory_node, "What it reads.")
      .field("traffic_cpu_node", &Knee::traffic_cpu_node, "Of the others.")
      .field("traffic_memory_node", &Knee::traffic_memory_node, "What they load.")
      .field("mix", &Knee::mix, "Of the traffic.")
      .field("bandwidth", &Knee::bandwidth, "Bytes per second of the traffic there.")
      .field("latency_ns", &Knee::latency_ns, "There.")
      .field("idle_ns", &Knee::idle_ns, "With the least traffic.");
  Record<CacheStep>(m, "CacheStep", "A plateau of latency against working-set size.")
      .field("cpu_node", &CacheStep::cpu_node, "Who read.")
      .field("memory_node", &CacheStep::memory_node, "Where from.")
      .field("name", &CacheStep::name, "L1, L2, ..., memory.")
      .field("from_size", &CacheStep::from, "Bytes, the smallest measured on it.")
      .field("to_size", &CacheStep::to, "Bytes, the largest.")
      .field("latency_ns", &CacheStep::latency_ns, "Median over the sizes.");
  m.def("copy_fits", &copy_fits, "profile"_a, "Of engines with three sizes or more.");
  m.def("crossovers", &crossovers, "profile"_a,
        "Where cpu or memcpy clearly takes over; the first of a series has its smallest size.");
  m.def("knees", &knees, "profile"_a, "Of curves with four points or more.");
  m.def("cache_steps", &cache_steps, "profile"_a, "From small to large, per pair of nodes.");
  m.def(
      "merge", [](const std::vector<Profile>& launches) { return unwrap(merge(launches)); },
      "launches"_a, "Several launches of one measurement as one profile: all samples together.");
}

void bind_comparison(nb::module_& m) {
  Record<Difference>(m, "Difference", "One point of two profiles.")
      .field("key", &Difference::key, "Experiment and parameters.")
      .field("unit", &Difference::unit, "Of the values.")
      .field("verdict", &Difference::verdict,
             "changed: beyond what the two vary by themselves; noisy: not judged.")
      .field("old_value", &Difference::old_value, "Median; None if not measured.")
      .field("new_value", &Difference::new_value, "Median; None if not measured.")
      .field("ratio", &Difference::ratio, "new / old.")
      .field("threshold", &Difference::threshold, "Of |ln(ratio)|, above which it is a change.");
  Record<Shift>(m, "Shift", "All rows of one experiment together.")
      .field("experiment", &Shift::experiment, "latency, bandwidth, ...")
      .field("rows", &Shift::rows, "How many were judged.")
      .field("ratio", &Shift::ratio, "Median of new / old.")
      .field("threshold", &Shift::threshold, "Of |ln(ratio)|, above which it is a change.")
      .field("changed", &Shift::changed, "Beyond it, and of five rows or more.");
  Record<Comparison>(m, "Comparison", "What differs between two profiles.")
      .field("rows", &Comparison::rows, "As the old profile has them, then the new one's own.")
      .field("shifts", &Comparison::shifts, "One per experiment.")
      .computed("changed", &Comparison::changed, "Any row or any experiment.");
  m.def(
      "compare",
      [](const Profile& before, const Profile& after, double least) {
        if (!(least >= 0 && std::isfinite(least))) {
          raise(ErrorCode::invalid, "least must be 0 or more; 0.05 is 5 %");
        }
        const nb::gil_scoped_release release;
        return compare(before, after, {.least = least});
      },
      "before"_a, "after"_a, "least"_a = 0.05,
      "What differs beyond noise, and by at least `least`, a share of the old value.");
}

}  // namespace

void bind_profile(nb::module_& m) {
  bind_row(m);
  bind_profile_class(m);
  bind_findings(m);
  bind_comparison(m);
}

}  // namespace headrace::python
