// SPDX-License-Identifier: Apache-2.0
// `measure`: the points asked for, as one session, into a profile.
#include "measure/measure.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <map>
#include <set>

#include "core/fail.h"
#include "core/text/files.h"
#include "headrace/clock.h"
#include "headrace/measure.h"
#include "headrace/version.h"
#include "measure/experiments/dsa/dsa.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/gpu/gpu.h"
#include "measure/experiments/migrate/migrate.h"
#include "measure/instruments/ticks.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/alike.h"
#include "measure/session/available.h"
#include "measure/session/plan.h"
#include "measure/session/session.h"
#include "profile/profile.h"
#include "topology/topology.h"

namespace headrace {
namespace {

using namespace session;

const std::array<const Experiment*, 13> kExperiments = {
    &experiment_latency::kExperiment,     &experiment_bandwidth::kExperiment,
    &experiment_loaded::kExperiment,      &experiment_stream::kExperiment,
    &experiment_copy::kExperiment,        &experiment_migrate::kExperiment,
    &experiment_storage::kExperiment,     &experiment_interference::kExperiment,
    &experiment_dsa::kExperiment,         &experiment_gpu::kExperiment,
    &experiment_parallelism::kExperiment, &experiment_core_to_core::kExperiment,
    &experiment_split::kExperiment,
};

// Requires: an experiment of that name.
const Experiment& experiment_of(const Selection& selection) {
  return **std::ranges::find(kExperiments, selection.experiment, &Experiment::name);
}

// With less not even the points of rank 0 of one node are measured three times.
constexpr Nanoseconds kLeastBudget = std::chrono::seconds{2};
// A session that takes more than this part of its budget says so.
constexpr double kNearBudget = 1.1;

std::string known_line(const char* path) {
  const std::string line = first_line(path);
  return line.empty() ? "unknown" : line;
}

// A line of the first CPU in /proc/cpuinfo; "unknown" where there is no such line.
std::string cpu_line(std::string_view name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with(name) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string now_in_words() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

// Conditions besides the machine that move results, as they were when measuring began.
std::map<std::string, std::string> conditions(const Machine& machine,
                                              const MeasureOptions& options) {
  const instruments::Ticks& ticks = instruments::Ticks::instance();
  return {{"date", now_in_words()},
          {"headrace", std::string(version())},
          {"seed", std::to_string(options.seed)},
          {"budget_s", options.budget ? fmt::format("{:.1f}", seconds(*options.budget)) : "full"},
          {"interval_width", fmt::format("{}", options.width)},
          {"cpu_mhz", cpu_line("cpu MHz")},
          {"microcode", cpu_line("microcode")},
          {"hypervisor", is_virtual(machine) ? "yes" : "no"},
          {"governor", known_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")},
          {"transparent_hugepage", known_line("/sys/kernel/mm/transparent_hugepage/enabled")},
          {"numa_balancing", known_line("/proc/sys/kernel/numa_balancing")},
          {"kernel", known_line("/proc/sys/kernel/osrelease")},
          {"load_average", known_line("/proc/loadavg")},
          {"clock", ticks.by_counter() ? "time-stamp counter" : "clock_gettime"},
          {"cpus", to_string(usable_cpus())}};
}

// The part of this host that a session may use now. Another host is used whole.
struct Available {
  HostMemory host;
  std::optional<CpuTimeLimit> cpu_time;
  Machine machine;  // `in`, made smaller by them

  Available(const Machine& in, bool here)
      : host(here ? read_host_memory() : HostMemory{}),
        cpu_time(here ? cpu_time_limit() : std::nullopt),
        machine(here ? within_cpu_time(within_free_memory(in, host), cpu_time) : in) {}

  bool has_less_cpu_time() const {
    return cpu_time && cpu_time->cpus < static_cast<double>(usable_cpus().size());
  }

  void refuse(std::vector<Point>& points) const {
    refuse_forbidden(points, host);
    if (has_less_cpu_time()) refuse_too_many_threads(points, cpu_time);
  }

  std::optional<std::size_t> most_threads() const {
    return has_less_cpu_time() ? std::optional(cpu_time->threads()) : std::nullopt;
  }

  // A power of two, so that what changes from hour to hour does not change the sizes of buffers.
  std::optional<Bytes> memory_limit() const {
    if (!host.cgroup) return std::nullopt;
    return Bytes{std::bit_floor(host.cgroup->value)};
  }

  std::vector<NodeId> forbidden() const {
    std::vector<NodeId> nodes;
    for (const NodeMemory& node : host.nodes) {
      if (!node.allowed) nodes.push_back(node.id);
    }
    return nodes;
  }

  // Adds the limits, if there are any, in words that stay the same from run to run: `compare` lists
  // the conditions that differ.
  void tell(std::map<std::string, std::string>& conditions) const {
    if (cpu_time) conditions["cpu_limit"] = cpu_time->words();
    if (const auto left = memory_limit()) {
      conditions["memory_limit"] = fmt::format("at least {} left", to_string(*left));
    }
    if (!forbidden().empty()) conditions["memory_nodes"] = host.allowed_list;
  }
};

// Values of a parameter that an error lists.
constexpr std::size_t kMostValues = 12;

std::string in_words(const ParameterValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

std::string in_words(const ParameterChoices& only) {
  std::vector<std::string> all;
  for (const auto& [name, choice] : only) {
    std::vector<std::string> values;
    if (const auto* several = std::get_if<std::vector<ParameterValue>>(&choice)) {
      for (const ParameterValue& value : *several) values.push_back(in_words(value));
    } else if (const auto* number = std::get_if<std::uint64_t>(&choice)) {
      values.push_back(std::to_string(*number));
    } else {
      values.push_back(std::get<std::string>(choice));
    }
    all.push_back(fmt::format("{}={}", name, fmt::join(values, "|")));
  }
  return fmt::format("{}", fmt::join(all, " "));
}

// "copy has bytes=1|2 threads=2 or of storage has depth=7".
std::string what_is_asked(const MeasureOptions& options) {
  std::vector<Selection> all = options.selections;
  if (all.empty()) {
    const std::string names = fmt::format("{}", fmt::join(options.experiments, ", "));
    all.push_back({names.empty() ? "any experiment" : names, options.only});
  }
  std::vector<std::string> words;
  for (const auto& [experiment, only] : all) {
    words.push_back(experiment + (only.empty() ? " is here" : " has " + in_words(only)));
  }
  return fmt::format("{}", fmt::join(words, " or of "));
}

// Choices that no point has, each by itself; all if only their combination has no point.
ParameterChoices at_fault(const Experiment& experiment, const ParameterChoices& only, Scope scope) {
  ParameterChoices found;
  for (const auto& each : only) {
    scope.only = {each};
    const auto points = experiment.points(scope);
    const bool there = std::ranges::any_of(points, [&](const Point& point) {
      return !point.row.parameters.empty() && scope.wants(point.row, experiment.parameters);
    });
    if (!there) found.insert(each);
  }
  return found.empty() ? only : found;
}

// Adds the values, in words, that points have of a parameter.
void add_values(std::vector<std::string>& known, const std::vector<Point>& points,
                const std::string& name) {
  for (const Point& point : points) {
    const ParameterValue* const value = point.row.parameter(name);
    if (value == nullptr) continue;
    const auto* const number = std::get_if<std::uint64_t>(value);
    std::string word = number != nullptr && (name == "bytes" || name == "window")
                           ? to_string(Bytes(*number))
                           : in_words(*value);
    if (std::ranges::find(known, word) == known.end()) known.push_back(std::move(word));
  }
}

// "; bytes is 64 KiB or 16 MiB": which values there are of the parameters that nothing fits, in the
// order of appearance.
std::string what_there_is(const std::vector<Selection>& selections, Scope scope) {
  std::map<std::string, std::vector<std::string>> values;
  for (const Selection& selection : selections) {
    if (selection.only.empty()) continue;
    const Experiment& experiment = experiment_of(selection);
    const ParameterChoices asked = at_fault(experiment, selection.only, scope);
    for (const auto& each : asked) {
      scope.only = {};
      add_values(values[each.first], experiment.points(scope), each.first);
      if (!values[each.first].empty()) continue;
      scope.only = {each};  // some have a parameter only where it is asked for
      add_values(values[each.first], experiment.points(scope), each.first);
    }
  }
  std::string words;
  for (auto& [name, known] : values) {
    if (known.empty()) {
      words += fmt::format("; nothing here has {} by default", name);
      continue;
    }
    if (known.size() > kMostValues) {
      known.resize(kMostValues);
      known.emplace_back("others");
    }
    const std::string last = known.back();
    known.pop_back();
    words += known.empty() ? fmt::format("; {} is {}", name, last)
                           : fmt::format("; {} is {} or {}", name, fmt::join(known, ", "), last);
  }
  return words;
}

std::vector<Selection> selections_of(const MeasureOptions& options) {
  if (!options.selections.empty()) return options.selections;
  std::vector<Selection> selections;
  for (const Experiment* experiment : kExperiments) {
    const std::string name(experiment->name);
    const auto& names = options.experiments;
    if (names.empty() || std::ranges::find(names, name) != names.end()) {
      selections.push_back({name, options.only});
    }
  }
  return selections;
}

// A name that no experiment asked for has is a mistake, and the value not to blame.
Status check_parameters(const std::vector<Selection>& selections) {
  std::vector<std::string_view> known;
  std::set<std::string> asked;
  for (const Selection& selection : selections) {
    const Experiment& experiment = experiment_of(selection);
    for (const Parameter& parameter : experiment.parameters) {
      if (std::ranges::find(known, parameter.name) == known.end()) known.push_back(parameter.name);
    }
    for (const auto& [name, choice] : selection.only) asked.insert(name);
  }
  for (const std::string& name : asked) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return fail(ErrorCode::invalid, "no parameter '{}' of {}; there are {}", name,
                selections.size() == 1 ? selections.front().experiment : "these experiments",
                fmt::join(known, ", "));
  }
  return {};
}

Status check_names(const MeasureOptions& options) {
  std::vector<std::string> names = options.experiments;
  for (const Selection& selection : options.selections) names.push_back(selection.experiment);
  std::vector<std::string_view> known;
  for (const Experiment* experiment : kExperiments) known.push_back(experiment->name);
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end()) {
      return fail(ErrorCode::invalid, "no experiment '{}'; there are {}", name,
                  fmt::join(known, ", "));
    }
  }
  return {};
}

// Adds those that are wanted and not there yet.
void add_wanted(std::vector<Point>& points, std::vector<Point> found, const Scope& scope,
                const Experiment& experiment, const Available& available,
                std::set<std::string>& keys) {
  std::erase_if(found, [&](const Point& point) {
    return !scope.wants(point.row, experiment.parameters) ||
           (!keys.empty() && keys.contains(point.row.key()));
  });
  const bool node_asked = std::ranges::any_of(experiment.parameters, [&](const Parameter& each) {
    return each.kind == ParameterKind::node && scope.asks(std::string(each.name));
  });
  // Before one of alike points is chosen, which must be one that can be measured.
  available.refuse(found);
  if (experiment.alike_once && !node_asked) {
    measure_alike_once(found, scope.machine, experiment.parameters, !scope.budget);
  }
  for (Point& point : found) {
    if (keys.insert(point.row.key()).second) points.push_back(std::move(point));
  }
}

// Whether the experiment runs only on the host itself.
bool is_of_host(const Experiment& experiment) {
  return &experiment == &experiment_storage::kExperiment ||
         &experiment == &experiment_dsa::kExperiment || &experiment == &experiment_gpu::kExperiment;
}

std::vector<Point> points_of(const Experiment& experiment, const Scope& scope) {
  if (scope.here || !is_of_host(experiment)) return experiment.points(scope);
  std::vector<Point> points;
  points.push_back(without({.experiment = std::string(experiment.name)},
                           "another host's disk and devices are not known; plan it there"));
  return points;
}

Result<std::vector<Point>> points_of(const Available& available, const MeasureOptions& options,
                                     bool here,
                                     std::shared_ptr<BusMeter> bus = std::make_shared<BusMeter>()) {
  HEADRACE_TRY_STATUS(check_names(options));
  const MachineTables tables(available.machine);
  const instruments::AsIfUsable usable(usable_cpus());  // asked of the system once
  const std::vector<Selection> selections = selections_of(options);
  HEADRACE_TRY_STATUS(check_parameters(selections));
  std::vector<Point> points;
  std::map<std::string, std::set<std::string>> keys;  // by experiment
  Scope scope{.machine = available.machine,
              .directory = options.directory,
              .bus = std::move(bus),
              .here = here,
              .budget = options.budget.has_value(),
              .memory_limit = available.memory_limit(),
              .most_threads = available.most_threads(),
              .forbidden = available.forbidden()};
  for (const Selection& selection : selections) {
    scope.only = selection.only;
    const Experiment& experiment = experiment_of(selection);
    add_wanted(points, points_of(experiment, scope), scope, experiment, available,
               keys[selection.experiment]);
  }
  if (!points.empty()) return points;
  return fail(ErrorCode::invalid,
              "no point of {}{}; headrace measure --list and a run without it show the points",
              what_is_asked(options), what_there_is(selections, scope));
}

Shares shares() {
  Shares all;
  for (const Experiment* each : kExperiments) all[std::string(each->name)] = each->share;
  return all;
}

Sentinels sentinels_on(const Machine& machine) {
  return {.idle = experiment_latency::kExperiment.points({machine}),
          .loaded = experiment_bandwidth::kExperiment.points({machine})};
}

// "", "near", "socket" or "far": of the memory to the CPUs, or of the target to
// the source.
std::string distance_in(const Machine& machine, const Row& row) {
  for (const auto& [a, b] : {std::pair("cpu_node", "memory_node"), {"from", "to"}}) {
    const std::uint64_t* const first = row.number(a);
    const std::uint64_t* const second = row.number(b);
    if (first == nullptr || second == nullptr) continue;
    const Node* const from = machine.find(NodeId{static_cast<std::uint32_t>(*first)});
    const Node* const to = machine.find(NodeId{static_cast<std::uint32_t>(*second)});
    if (from != nullptr && to != nullptr) return std::string(distance_of(machine, *from, *to));
  }
  return "";
}

// Rows with a value that an earlier session left are kept and not measured
// again, unless what is measured now is no longer made of software, or is now.
std::vector<Row> take_known(std::vector<Point>& points, const std::vector<Row>& known) {
  std::map<std::string, Basis> wanted;
  for (const Point& point : points) wanted.emplace(point.row.key(), point.row.basis);
  std::vector<Row> kept;
  std::set<std::string> keys;
  for (const Row& row : known) {
    if (!row.value || row.basis == Basis::modelled) continue;
    const auto point = wanted.find(row.key());
    if (point != wanted.end() && point->second != row.basis) continue;
    kept.push_back(row);
    keys.insert(row.key());
  }
  std::erase_if(points, [&](const Point& point) { return keys.contains(point.row.key()); });
  return kept;
}

Status check_options(const MeasureOptions& options) {
  if (options.budget && *options.budget < kLeastBudget) {
    return fail(ErrorCode::invalid,
                "a budget of {:.1f} s is too small to measure anything; give {} s",
                seconds(*options.budget), kLeastBudget.count() / 1'000'000'000);
  }
  if (options.rounds == 0U || options.repetitions == 0) {
    return fail(ErrorCode::invalid, "no rounds or no repetitions; ask for at least one of each");
  }
  if (!options.selections.empty() && (!options.experiments.empty() || !options.only.empty())) {
    return fail(
        ErrorCode::invalid,
        "selections name experiments and parameters already; give them alone, or experiments "
        "and parameters without selections");
  }
  return {};
}

}  // namespace

std::string_view to_string(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::node: return "node";
    case ParameterKind::count: return "count";
    case ParameterKind::count_or_all: return "count_or_all";
    case ParameterKind::word: return "word";
    case ParameterKind::operation: return "operation";
    case ParameterKind::mix: return "mix";
    case ParameterKind::any: return "any";
  }
  return "unknown";
}

std::vector<ExperimentInfo> experiments() {
  std::vector<ExperimentInfo> infos;
  for (const Experiment* each : kExperiments) {
    ExperimentInfo info{.name = std::string(each->name),
                        .description = std::string(each->description)};
    for (const Parameter& parameter : each->parameters) {
      info.parameters.push_back({std::string(parameter.name), parameter.kind, parameter.required});
    }
    info.details.assign(each->details.begin(), each->details.end());
    infos.push_back(std::move(info));
  }
  return infos;
}

Result<Profile> measure(const Machine& machine, const MeasureOptions& options,
                        const ExperimentContext& context) {
  const Nanoseconds begin = system_clock().now();
  HEADRACE_TRY_STATUS(check_is_here(machine));
  HEADRACE_TRY_STATUS(check_options(options));
  Profile profile;
  profile.machine = machine;
  profile.conditions = conditions(machine, options);
  // Points name its nodes.
  const Available available(machine, true);
  available.tell(profile.conditions);
  if (std::string mode = cache_mode(machine); !mode.empty()) {
    profile.conditions["cache_mode"] = std::move(mode);
  }
  FoundCounter counter = find_bus_counter();
  profile.conditions["bus_counter"] = counter.words;
  HEADRACE_TRY(
      std::vector<Point> points,
      points_of(available, options, true, std::make_shared<BusMeter>(std::move(counter.counter))));
  profile.rows = take_known(points, options.known);
  leave_out(points, options, shares());
  const bool any =
      std::ranges::any_of(points, [](const Point& point) { return point.row.reason.empty(); });
  const Sentinels sentinels =
      options.noise_checks && any ? sentinels_on(available.machine) : Sentinels{};
  std::function<std::uint64_t()> throttled;
  if (available.cpu_time) throttled = [] { return times_throttled().value_or(0); };
  SessionResult found =
      run_session(machine, std::move(points), sentinels, options, context, throttled, begin);
  flag_partly_cached(found.rows);
  for (Row& row : found.rows) {
    if (row.value && available.has_less_cpu_time()) row.add_flag("cpu_limited");
    profile.rows.push_back(std::move(row));
  }
  profile.conditions["rounds"] = std::to_string(found.rounds);
  profile.conditions["looks_disturbed"] =
      fmt::format("{} of {}", found.disturbed, found.checks.size());
  if (found.stopped) profile.conditions["stopped"] = "before its end";
  const double took = seconds(system_clock().now() - begin);
  if (options.budget && took > kNearBudget * seconds(*options.budget)) {
    profile.conditions["over_budget"] =
        fmt::format("{:.1f} s instead of {:.1f} s; the least is one point, with its preparation",
                    took, seconds(*options.budget));
  }
  put_into_machine(profile);
  return profile;
}

Result<std::vector<PlannedPoint>> plan_session(const Machine& machine,
                                               const MeasureOptions& options) {
  HEADRACE_TRY_STATUS(check_options(options));
  const bool here = check_is_here(machine).has_value();
  CpuSet cpus;
  for (const Node& node : machine.nodes)
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  std::ranges::sort(cpus);
  std::optional<instruments::AsIfUsable> as_if;
  if (!here) as_if.emplace(cpus);
  const Available available(machine, here);
  HEADRACE_TRY(std::vector<Point> points, points_of(available, options, here));
  (void)take_known(points, options.known);
  leave_out(points, options, shares());
  const std::vector<Nanoseconds> times = times_of(points, options);
  std::vector<PlannedPoint> planned;
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::string distance = distance_in(machine, points[i].row);
    planned.push_back({std::move(points[i].row), times[i], std::move(distance)});
  }
  return planned;
}

}  // namespace headrace
