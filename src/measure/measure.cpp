// `measure`: the experiments asked for, as one session, into a profile.
#include "measure/measure.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "core/fail.h"
#include "headrace/measure.h"
#include "headrace/version.h"
#include "measure/attributes.h"
#include "measure/experiment.h"
#include "measure/session.h"
#include "measure/ticks.h"

namespace headrace {
namespace {

constexpr std::array kExperiments = {
    Experiment{"latency", "idle load-to-use latency by node, window, page and working-set size",
               latency_points},
    Experiment{"bandwidth", "bandwidth by node, mix of reads and writes, and threads",
               bandwidth_points},
    Experiment{"loaded", "latency of one core while others load the memory", loaded_points},
    Experiment{"stream", "STREAM's four kernels, each array on a node of its own", stream_points},
    Experiment{"copy", "copying by cores: engine, size, threads, nodes, cold and hot", copy_points},
    Experiment{"migrate", "moving pages between nodes, and what a running program feels of it",
               migrate_points},
    Experiment{"storage", "reading and writing a file: block size, depth, io_uring or threads",
               storage_points},
    Experiment{"interference", "who slows whom: one thread's work alone and beside others",
               interference_points},
    Experiment{"dsa", "copies by DSA devices: hand-over, threads, routes, queues, beside others",
               dsa_points},
};

// Below it not even the points of rank 0 of one node are measured three times.
constexpr Nanoseconds kLeastBudget = std::chrono::seconds{2};

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.empty() ? "unknown" : line;
}

// Of the first CPU in /proc/cpuinfo; "unknown" where there is no such line.
std::string cpu_line(std::string_view name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with(name) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// x86 says so among the flags of a CPU.
bool under_hypervisor() {
  return fmt::format(" {} ", cpu_line("flags")).find(" hypervisor ") != std::string::npos;
}

std::string now_in_words() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

// What moves results and is not the machine's: as it was when measuring began.
std::map<std::string, std::string> conditions(const MeasureOptions& options) {
  const Ticks& ticks = Ticks::instance();
  return {{"date", now_in_words()},
          {"headrace", std::string(version())},
          {"seed", std::to_string(options.seed)},
          {"budget_s", options.budget ? fmt::format("{:.1f}", seconds(*options.budget)) : "full"},
          {"interval_width", fmt::format("{}", options.width)},
          {"cpu_mhz", cpu_line("cpu MHz")},
          {"microcode", cpu_line("microcode")},
          {"hypervisor", under_hypervisor() ? "yes" : "no"},
          {"governor", first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")},
          {"transparent_hugepage", first_line("/sys/kernel/mm/transparent_hugepage/enabled")},
          {"numa_balancing", first_line("/proc/sys/kernel/numa_balancing")},
          {"kernel", first_line("/proc/sys/kernel/osrelease")},
          {"load_average", first_line("/proc/loadavg")},
          {"clock", ticks.by_counter() ? "time-stamp counter" : "clock_gettime"},
          {"cpus", to_string(usable_cpus())}};
}

std::string in_words(const std::map<std::string, ParameterValue>& only) {
  std::string text;
  for (const auto& [name, wanted] : only) {
    if (!text.empty()) text += " ";
    std::visit([&](const auto& v) { text += fmt::format("{}={}", name, v); }, wanted);
  }
  return text;
}

Result<std::vector<Point>> points_of(const Machine& machine, const MeasureOptions& options) {
  const Scope scope{machine, options.only, options.directory};
  std::vector<Point> points;
  std::vector<std::string_view> known;
  for (const Experiment& experiment : kExperiments) known.push_back(experiment.name);
  for (const std::string& name : options.experiments) {
    if (std::ranges::find(known, name) == known.end()) {
      return fail(ErrorCode::invalid, "no experiment '{}'; there are {}", name,
                  fmt::join(known, ", "));
    }
  }
  for (const Experiment& experiment : kExperiments) {
    const bool all = options.experiments.empty();
    if (!all &&
        std::ranges::find(options.experiments, experiment.name) == options.experiments.end()) {
      continue;
    }
    for (Point& point : experiment.points(scope)) points.push_back(std::move(point));
  }
  std::erase_if(points, [&](const Point& point) { return !scope.wants(point.row); });
  if (points.empty()) {
    return fail(ErrorCode::invalid,
                "no point of {} has {}; headrace measure --list and a run "
                "without it show what there is",
                options.experiments.empty()
                    ? "any experiment"
                    : fmt::format("{}", fmt::join(options.experiments, ", ")),
                in_words(options.only));
  }
  return points;
}

// Rows with a value that an earlier session left are kept and not measured again.
std::vector<Row> take_known(std::vector<Point>& points, const std::vector<Row>& known) {
  std::vector<Row> kept;
  std::set<std::string> keys;
  for (const Row& row : known) {
    if (!row.value) continue;
    kept.push_back(row);
    keys.insert(row.key());
  }
  std::erase_if(points, [&](const Point& point) { return keys.contains(point.row.key()); });
  return kept;
}

}  // namespace

std::span<const Experiment> all_experiments() { return kExperiments; }

std::vector<ExperimentInfo> experiments() {
  std::vector<ExperimentInfo> infos;
  for (const Experiment& each : kExperiments) {
    infos.push_back({std::string(each.name), std::string(each.description)});
  }
  return infos;
}

Result<Profile> measure(const Machine& machine, const MeasureOptions& options,
                        const ExperimentContext& context) {
  HEADRACE_TRY_STATUS(check_is_here(machine));
  if (options.budget && *options.budget < kLeastBudget) {
    return fail(ErrorCode::invalid,
                "a budget of {:.1f} s is too small to measure anything; give {} s",
                seconds(*options.budget), kLeastBudget.count() / 1'000'000'000);
  }
  Profile profile;
  profile.machine = machine;
  profile.conditions = conditions(options);
  HEADRACE_TRY(std::vector<Point> points, points_of(machine, options));
  profile.rows = take_known(points, options.known);
  leave_out(points, options.budget);
  SessionResult session = run_session(machine, std::move(points), options, context);
  for (Row& row : session.rows) profile.rows.push_back(std::move(row));
  profile.conditions["rounds"] = std::to_string(session.rounds);
  profile.conditions["looks_disturbed"] =
      fmt::format("{} of {}", session.disturbed, session.looks.size());
  if (session.stopped) profile.conditions["stopped"] = "before its end";
  put_into_machine(profile);
  return profile;
}

}  // namespace headrace
