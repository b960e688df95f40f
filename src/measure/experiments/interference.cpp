// SPDX-License-Identifier: Apache-2.0
// How much one thread's work slows down while other threads work on the same memory or another.
//
// A victim and one or more aggressors, each in its own thread, do one of: a chase (latency), reads,
// writes past the caches, a copy between two nodes, reads of a file. In every sample the victim
// runs alone, the aggressor alone, and both together, so that drift of the machine affects all
// three.
//
// The value is the slowdown of the victim (1: none; 2: half as fast, or each load takes twice as
// long). The details give both speeds (a chase in ns per load, others in B/s), the bytes moved by
// all together (`total`), and for equal work how evenly it was shared (`fairness`, Jain's index: 1
// for equal shares, 1/n if one has everything).
//
// `between` "processes": each aggressor is a process, and the victim is in this one. They share
// memory and caches, but neither page tables nor the lock on mappings (load_processes.h). They
// read, write or copy; by default only equal copies within a node are measured so.
// `ratio_to_threads` is the slowdown divided by that of threads in the same round.
#include "measure/experiments/interference.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/fail.h"
#include "headrace/placement.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/teams.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/measuring_file.h"
#include "measure/instruments/side_by_side/load_processes.h"
#include "measure/instruments/side_by_side/loads.h"
#include "measure/instruments/traffic/traffic_race.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_interference {

using namespace session;

namespace {

constexpr std::string_view kName = "interference";
constexpr Parameter kParameters[] = {
    {"victim", ParameterKind::word},      {"aggressor", ParameterKind::word},
    {"cpu_node", ParameterKind::node},    {"aggressor_cpu_node", ParameterKind::node},
    {"aggressors", ParameterKind::count}, {"between", ParameterKind::word, false},
};
// Parameters of all rows.
constexpr auto kOfAll = std::span(kParameters).first<5>();
constexpr std::string_view kDetails[] = {"alone", "together", "total"};

constexpr Bytes kLeastOfOne = 32_MiB;
constexpr Bytes kLeastOfFile = 256_KiB;
constexpr Nanoseconds kWindow = std::chrono::milliseconds{20};

enum class ActivityKind : std::uint8_t { chase, read, nt_write, copy, file };

// The work of a thread, and its memory.
struct Activity {
  ActivityKind kind = ActivityKind::chase;
  const Node* from = nullptr;
  const Node* to = nullptr;  // for a copy

  bool operator==(const Activity&) const = default;
  std::string name() const {
    switch (kind) {
      case ActivityKind::chase: return fmt::format("chase {}", raw(from->id));
      case ActivityKind::read: return fmt::format("read {}", raw(from->id));
      case ActivityKind::nt_write: return fmt::format("nt_write {}", raw(from->id));
      case ActivityKind::copy: return fmt::format("copy {}>{}", raw(from->id), raw(to->id));
      case ActivityKind::file: return fmt::format("file {}>{}", raw(from->id), raw(to->id));
    }
    return "";
  }
  const Node* memory() const { return to == nullptr ? from : to; }
  // Whether a separate process can do it: linking a cycle and requesting a file allocate memory.
  bool is_for_processes() const {
    return kind != ActivityKind::chase && kind != ActivityKind::file;
  }
};

struct InterferenceSetting {
  Activity victim;
  Activity aggressor;
  const Node* cpu_node = nullptr;  // of the victim
  const Node* aggressor_cpu_node = nullptr;
  CpuSet cpus;  // the victim's first
  bool processes = false;

  bool uses_file() const {
    return victim.kind == ActivityKind::file || aggressor.kind == ActivityKind::file;
  }
};

Runs by_threads(CpuSet cpus, std::vector<std::unique_ptr<Load>> loads) {
  const auto all = std::make_shared<std::vector<std::unique_ptr<Load>>>(std::move(loads));
  return {[cpus = std::move(cpus), loads = all](bool victim, std::size_t aggressors) {
    const std::size_t first = victim ? 0 : 1;
    std::vector<Load*> some;
    for (std::size_t i = first; i <= aggressors; ++i) some.push_back((*loads)[i].get());
    const auto cpu = cpus.begin() + static_cast<std::ptrdiff_t>(first);
    return side_by_side({cpu, cpu + static_cast<std::ptrdiff_t>(some.size())}, some, kWindow);
  }};
}

Runs by_processes(unsigned cpu, std::unique_ptr<Load> own, std::shared_ptr<LoadProcesses> others) {
  const double huge = others->huge_part();
  const auto run = [cpu, own = std::shared_ptr<Load>(std::move(own)), others = std::move(others)](
                       bool victim, std::size_t aggressors) {
    const CpuSet cpus = victim ? CpuSet{cpu} : CpuSet{};
    const std::vector<Load*> loads = victim ? std::vector<Load*>{own.get()} : std::vector<Load*>{};
    return others->beside(cpus, loads, kWindow, aggressors);
  };
  return {run, huge};
}

class Interference final : public Probe {
 public:
  Interference(const InterferenceSetting& setting, Runs runs)
      : setting_(setting), runs_(std::move(runs)) {}

  Result<Sample> sample() override {
    return interference_of(runs_,
                           {.victim_chases = setting_.victim.kind == ActivityKind::chase,
                            .aggressor_chases = setting_.aggressor.kind == ActivityKind::chase,
                            .equal = setting_.victim == setting_.aggressor,
                            .gives_up_cpu = setting_.uses_file()},
                           setting_.cpus.size() - 1);
  }

 private:
  const InterferenceSetting setting_;
  const Runs runs_;
};

Row interference_row(const InterferenceSetting& setting) {
  Row row = make_row(kName, kOfAll,
                     {setting.victim.name(), setting.aggressor.name(), id_of(setting.cpu_node),
                      id_of(setting.aggressor_cpu_node), std::uint64_t{setting.cpus.size() - 1}},
                     "x");
  if (setting.processes) row.parameters.emplace_back("between", std::string("processes"));
  return row;
}

// Makes the loads of a point, each on its own memory of `each` bytes; a file's needs less.
class LoadMaker {
 public:
  LoadMaker(const Machine& machine, BufferPool& buffers, Random& random, MeasuringFile& file,
            Races& races, Bytes each)
      : machine_(machine),
        buffers_(buffers),
        random_(random),
        file_(file),
        races_(races),
        each_(each) {}

  Result<std::unique_ptr<Load>> make(const Activity& activity, unsigned cpu) {
    switch (activity.kind) {
      case ActivityKind::chase: return make_chase(activity, cpu);
      case ActivityKind::read: return make_traffic(activity, "read", cpu);
      case ActivityKind::nt_write: return make_traffic(activity, "nt_write", cpu);
      case ActivityKind::copy: return make_copy(activity);
      case ActivityKind::file: return make_file(activity);
    }
    return fail(ErrorCode::invalid, "no such work");
  }

  // On memory that only the process will touch. Requires: is_for_processes().
  Result<LoadProcess> make_process(const Activity& activity, unsigned cpu) {
    LoadProcess process{.cpu = cpu};
    std::vector<std::span<std::byte>> bytes;
    for (const Node* node : {activity.memory(), activity.from}) {
      HEADRACE_TRY(auto memory, untouched(machine_, node->id, each_));
      bytes.push_back(memory->bytes().first(each_.value));
      process.memory.push_back(std::move(memory));
      if (activity.to == nullptr) break;
    }
    if (activity.kind == ActivityKind::copy) {
      process.load = std::make_unique<CopyLoad>(bytes[0], bytes[1]);
      return process;
    }
    // The race for the loop runs once, on memory of this process.
    const std::string_view name = activity.kind == ActivityKind::read ? "read" : "nt_write";
    HEADRACE_TRY(const TrafficKernel kernel, race(activity, *find_mix(name), cpu));
    process.load = std::make_unique<TrafficLoad>(kernel, divide(kernel.mix(), bytes[0]));
    return process;
  }

 private:
  Result<std::span<std::byte>> memory(const Node& node, Bytes bytes) {
    return buffers_.get({node.id, PageSize::transparent}, next_++, bytes);
  }

  Result<std::unique_ptr<Load>> make_chase(const Activity& activity, unsigned cpu) {
    HEADRACE_TRY(const auto bytes, memory(*activity.from, each_));
    void* start = nullptr;
    HEADRACE_TRY_STATUS(run_pinned({cpu}, [&](std::size_t) {
      start = make_cycle(bytes, 2_MiB, random_);
      (void)drop_from_caches(bytes);
    }));
    return std::make_unique<ChaseLoad>(start);
  }
  Result<std::unique_ptr<Load>> make_traffic(const Activity& activity, std::string_view name,
                                             unsigned cpu) {
    const Mix& mix = *find_mix(name);
    HEADRACE_TRY(const TrafficKernel kernel, race(activity, mix, cpu));
    HEADRACE_TRY(const auto bytes, memory(*activity.from, each_));
    return std::make_unique<TrafficLoad>(kernel, divide(mix, bytes));
  }
  // The fastest loop, raced on the buffer that is made next.
  Result<TrafficKernel> race(const Activity& activity, const Mix& mix, unsigned cpu) {
    HEADRACE_TRY(const auto bytes,
                 buffers_.get({activity.from->id, PageSize::transparent}, next_, each_));
    const std::string ground =
        ground_of(machine_, *host_of(machine_, *activity.from), *activity.from);
    HEADRACE_TRY(const Shape shape, races_.fastest(mix, {cpu}, ground, {divide(mix, bytes)}));
    return TrafficKernel(mix, shape);
  }
  Result<std::unique_ptr<Load>> make_copy(const Activity& activity) {
    HEADRACE_TRY(const auto to, memory(*activity.to, each_));
    HEADRACE_TRY(const auto from, memory(*activity.from, each_));
    return std::make_unique<CopyLoad>(to, from);
  }
  Result<std::unique_ptr<Load>> make_file(const Activity& activity) {
    HEADRACE_TRY(const File* file, file_.get());
    HEADRACE_TRY(const auto bytes, memory(*activity.to, kLeastOfFile));
    return std::make_unique<FileLoad>(*file, bytes, random_());
  }

  const Machine& machine_;
  BufferPool& buffers_;
  Random& random_;
  MeasuringFile& file_;
  Races& races_;
  const Bytes each_;
  std::size_t next_ = 0;
};

// First one against one on the nearest memory, reads and copies first.
unsigned rank_of(const InterferenceSetting& setting) {
  const Node* home = setting.cpu_node;
  const auto local = [&](const Activity& activity) {
    return activity.from == home && (activity.to == nullptr || activity.to == home);
  };
  const bool both = local(setting.victim) && local(setting.aggressor);
  const bool copies =
      setting.victim.kind == ActivityKind::copy && setting.victim == setting.aggressor;
  if (setting.processes && !copies) return 4;
  if (!both || setting.cpus.size() > 2 || setting.aggressor.kind == ActivityKind::chase) return 4;
  const bool writes = setting.victim.kind == ActivityKind::nt_write ||
                      setting.aggressor.kind == ActivityKind::nt_write;
  return writes ? 3 : 2;
}

// Bytes that each load walks over: more than the caches, and in total at most a part of any node.
Bytes bytes_of_each(const Machine& machine, const InterferenceSetting& setting, Row& row) {
  const Bytes wanted =
      past_caches(row, machine, {setting.cpus.front()}, kCachesPassed, kLeastOfOne);
  const std::uint64_t buffers = 2 * setting.cpus.size();  // a copy has two
  Bytes each = wanted;
  for (const Activity& activity : {setting.victim, setting.aggressor}) {
    for (const Node* node : {activity.from, activity.to}) {
      if (node == nullptr || !node->byte_addressable()) continue;
      each = fit(row, *node, each);
      const Bytes share = *node->capacity / (4 * buffers);
      if (share < each) each = 2_MiB * (share / 2_MiB);
    }
  }
  if (each < wanted) row.add_flag("shrunk");
  return each;
}

std::string ground_near(const Machine& machine, const Node& memory) {
  return ground_of(machine, *host_of(machine, memory), memory);
}

std::vector<NodeId> nodes_of(const InterferenceSetting& setting) {
  std::vector<NodeId> nodes;
  for (const Activity& activity : {setting.victim, setting.aggressor}) {
    for (const Node* node : {activity.from, activity.to}) {
      if (node != nullptr) nodes.push_back(node->id);
    }
  }
  return nodes;
}

// Reads and writes use the fastest loop of one thread.
std::vector<std::string> races_of(const Machine& machine, const InterferenceSetting& setting) {
  std::set<std::string> races;
  for (const Activity& activity : {setting.victim, setting.aggressor}) {
    const bool reads = activity.kind == ActivityKind::read;
    if (!reads && activity.kind != ActivityKind::nt_write) continue;
    races.insert(
        race_of(*find_mix(reads ? "read" : "nt_write"), 1, ground_near(machine, *activity.from)));
  }
  return {races.begin(), races.end()};
}

Result<Runs> thread_runs(const InterferenceSetting& setting, LoadMaker& maker) {
  std::vector<std::unique_ptr<Load>> loads;
  for (std::size_t i = 0; i < setting.cpus.size(); ++i) {
    const Activity& activity = i == 0 ? setting.victim : setting.aggressor;
    HEADRACE_TRY(auto load, maker.make(activity, setting.cpus[i]));
    loads.push_back(std::move(load));
  }
  return by_threads(setting.cpus, std::move(loads));
}

Result<Runs> process_runs(const InterferenceSetting& setting, LoadMaker& maker) {
  std::vector<LoadProcess> processes;
  for (std::size_t i = 1; i < setting.cpus.size(); ++i) {
    HEADRACE_TRY(auto process, maker.make_process(setting.aggressor, setting.cpus[i]));
    processes.push_back(std::move(process));
  }
  HEADRACE_TRY(auto own, maker.make(setting.victim, setting.cpus.front()));
  HEADRACE_TRY(auto others, LoadProcesses::start(std::move(processes)));
  return by_processes(setting.cpus.front(), std::move(own), std::move(others));
}

// Equal copies within a node, by two CPUs and by all of its CPUs. On request all work that a
// process can do.
bool worth_processes(const Scope& scope, const InterferenceSetting& setting) {
  if (!setting.aggressor.is_for_processes()) return false;
  if (scope.asks("between")) return true;
  const Activity& victim = setting.victim;
  if (victim != setting.aggressor || victim.to == nullptr || victim.from != victim.to) return false;
  return setting.cpus.size() == 2 || setting.cpus.size() == usable_cpus(setting.cpu_node).size();
}

InterferenceSetting as_threads(InterferenceSetting setting) {
  setting.processes = false;
  return setting;
}

// Three windows per sample, with settling before each; linking chases at 40 ns per line; memory
// that processes touch anew, at 1.5 GB/s each.
Nanoseconds cost_of(const InterferenceSetting& setting, Bytes each) {
  const auto others = static_cast<double>(setting.cpus.size() - 1);
  double chases = setting.victim.kind == ActivityKind::chase ? 1 : 0;
  if (setting.aggressor.kind == ActivityKind::chase) chases += others;
  double ns_per_byte = chases * 40 / kLine;
  if (setting.processes) ns_per_byte += others * 2 / 3;
  return 12 * kWindow +
         Nanoseconds{static_cast<std::int64_t>(ns_per_byte * static_cast<double>(each.value))};
}

Point interference_point(const Scope& scope, const InterferenceSetting& setting) {
  Row row = interference_row(setting);
  row.cpus = list_of_cpus({setting.cpus.begin(), setting.cpus.end()});
  if (setting.cpus.size() < 2) {
    return without(std::move(row), "one CPU cannot do two things at once");
  }
  const Bytes each = bytes_of_each(scope.machine, setting, row);
  if (each < kLeastOfFile) return without(std::move(row), "a node is too small for all of it");
  Point point;
  point.row = std::move(row);
  point.rank = rank_of(setting);
  point.memory = {setting.victim.memory()->id, PageSize::transparent};
  point.others = nodes_of(setting);
  point.races = races_of(scope.machine, setting);
  point.cost = cost_of(setting, each);
  // The buffers of threads stay from point to point.
  const std::size_t most = 2 * setting.cpus.size();  // of copies
  point.setup = {.name = fmt::format("{} x {}", most, each.value),
                 .cost = touching(each * most, usable_cpus(setting.cpu_node).size())};
  if (worth_processes(scope, setting)) {
    point.comparable = {.group = interference_row(as_threads(setting)).key(),
                        .detail = "ratio_to_threads",
                        .reference = !setting.processes};
  }
  if (setting.uses_file()) point.file = scope.file;
  point.prepare = [setting, &machine = scope.machine, file = scope.file, races = scope.races, each](
                      BufferPool& buffers, Random& random) -> Result<std::unique_ptr<Probe>> {
    LoadMaker maker(machine, buffers, random, *file, *races, each);
    HEADRACE_TRY(Runs runs,
                 setting.processes ? process_runs(setting, maker) : thread_runs(setting, maker));
    return std::make_unique<Interference>(setting, std::move(runs));
  };
  return point;
}

// One node of each kind near the first CPUs, the copies between them, another node of the same
// kind, and the disk.
std::vector<Activity> activities_of(const Machine& machine, const Node& home, const Node* disk) {
  std::vector<Activity> all;
  for (const Node* node : one_of_each_kind(machine, home)) {
    for (const ActivityKind kind :
         {ActivityKind::chase, ActivityKind::read, ActivityKind::nt_write})
      all.push_back({kind, node});
    all.push_back({ActivityKind::copy, &home, node});
    if (node != &home) all.push_back({ActivityKind::copy, node, &home});
  }
  for (const Node* node : nodes_with_cpus(machine)) {
    if (node == &home || node->kind != home.kind) continue;
    all.push_back({ActivityKind::copy, &home, node});
    all.push_back({ActivityKind::copy, node, &home});
    break;
  }
  if (disk != nullptr) all.push_back({ActivityKind::file, disk, &home});
  return all;
}

// Latency beside reads of the same memory, and read bandwidth beside writes: their curves over the
// number of aggressors are informative.
bool is_saturation(const InterferenceSetting& setting) {
  const ActivityKind slower = setting.aggressor.kind;
  return setting.victim.from == setting.aggressor.from &&
         ((setting.victim.kind == ActivityKind::chase && slower == ActivityKind::read) ||
          (setting.victim.kind == ActivityKind::read && slower == ActivityKind::nt_write));
}

// The requested numbers of aggressors; else one, and for informative curves also 2, 4, ... and all
// CPUs.
std::set<std::size_t> aggressor_counts(const Scope& scope, const InterferenceSetting& setting,
                                       std::size_t others) {
  const auto asked = scope.numbers("aggressors");
  if (!asked.empty()) return {asked.begin(), asked.end()};
  const bool equals = setting.victim == setting.aggressor;
  return thread_counts(equals || is_saturation(setting) ? std::max<std::size_t>(others, 1) : 1);
}

void add_pair(std::vector<Point>& points, const Scope& scope, InterferenceSetting setting) {
  setting.cpu_node = host_of(scope.machine, *setting.victim.memory());
  setting.aggressor_cpu_node = host_of(scope.machine, *setting.aggressor.memory());
  if (setting.cpu_node == nullptr || setting.aggressor_cpu_node == nullptr) return;
  const CpuSet own = usable_cpus(setting.cpu_node);
  if (own.empty() || usable_cpus(setting.aggressor_cpu_node).empty()) return;
  const unsigned observer = observer_of(scope.machine, own);
  const std::vector<unsigned> others =
      beside(scope.machine, observer, spread_order(scope.machine, *setting.aggressor_cpu_node));
  for (const std::size_t count : aggressor_counts(scope, setting, others.size())) {
    if (count == 0 || (count > others.size() && scope.asks("aggressors"))) continue;
    setting.cpus = {observer};
    setting.cpus.insert(
        setting.cpus.end(), others.begin(),
        others.begin() + static_cast<std::ptrdiff_t>(std::min(count, others.size())));
    for (const bool processes : {false, true}) {
      if (processes && !worth_processes(scope, setting)) continue;
      setting.processes = processes;
      points.push_back(interference_point(scope, setting));
    }
  }
}

std::vector<Point> list_points(const Scope& scope) {
  std::vector<Point> points;
  const Node* disk = disk_behind(scope.machine, scope.directory);
  std::set<std::string> known;
  for (const Node* home : nodes_with_cpus(scope.machine)) {
    const std::vector<Activity> all = activities_of(scope.machine, *home, disk);
    for (const Activity& victim : all) {
      for (const Activity& aggressor : all) {
        // Copies between two nodes with CPUs are listed for each of them.
        if (!known.insert(victim.name() + "/" + aggressor.name()).second) continue;
        add_pair(points, scope, {victim, aggressor});
      }
    }
    // Rows of other nodes than the first are listed only if they are named.
    if (!scope.asks("cpu_node") && !scope.asks("aggressor_cpu_node")) break;
  }
  return points;
}

}  // namespace

Result<Sample> interference_of(const Runs& runs, const Work& work, std::size_t aggressors) {
  HEADRACE_TRY(const SideBySide alone, runs.run(true, 0));
  HEADRACE_TRY(const SideBySide aggressor, runs.run(false, 1));
  HEADRACE_TRY(const SideBySide all, runs.run(true, aggressors));
  const auto shown = [](bool chases, double rate) { return chases ? 1e9 / rate : rate; };
  double total = 0;  // bytes: a chase counts its lines
  for (std::size_t i = 0; i < all.rates.size(); ++i) {
    const bool chases = i == 0 ? work.victim_chases : work.aggressor_chases;
    total += all.rates[i] * (chases ? kLine : 1);
  }
  Sample sample{.value = alone.rates[0] / all.rates[0],
                .details = {{"alone", shown(work.victim_chases, alone.rates[0])},
                            {"together", shown(work.victim_chases, all.rates[0])},
                            {"aggressor_alone", shown(work.aggressor_chases, aggressor.rates[0])},
                            {"aggressor_together", shown(work.aggressor_chases, all.rates[1])},
                            {"total", total}},
                .cpu_share = std::min({alone.cpu_share, aggressor.cpu_share, all.cpu_share}),
                .huge_part = runs.huge_part};
  if (work.equal) sample.details["fairness"] = fairness(all.rates);
  if (work.gives_up_cpu) sample.cpu_share = 1;
  return sample;
}

const Experiment kExperiment{kName, "who slows whom: one thread's work alone and while others run",
                             kParameters, kDetails, list_points};

}  // namespace headrace::experiment_interference
