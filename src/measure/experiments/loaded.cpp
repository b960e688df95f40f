// SPDX-License-Identifier: Apache-2.0
// Loaded latency: a pointer chase on one CPU while others load a memory with a mix of traffic that
// is slowed down by pauses.
//
// The points of a curve are shares of the most that the traffic reaches, and their pauses are found
// by bisection (pace.h): what a pause gives depends on the machine. A session that asks for
// `delay_ns` gets those pauses instead, one that asks for `threads` so many threads of traffic, one
// that asks for a mix any there is. The value is the mean latency of the chase; the details give
// its percentiles, the pause, and the bandwidth that the traffic really reached meanwhile, which is
// the axis to draw it against (`bus_counted`: what of it crossed the bus, where that is counted).
// It is taken once the bandwidth is steady: `drift` is by how much the last two windows differed,
// at most three being run for it. The chase is that of the idle latency: the same CPU, the same
// cycle (idle_cycle.h); what it took without traffic just before is the detail `idle`. The words
// say which CPU observed, which made traffic and by which loop (traffic_race.h). Observer, its
// data, the traffic and the traffic's data each have a node. By default the points are: traffic
// from the observer's node to the observer's memory; to memory of another kind; and traffic from
// another node's CPUs. A session that asks for a node of the traffic lists every combination.
// Without a budget memory near the observer has a family of curves, by the share of reads in tenths
// (mixes_by_share). The details `chased_bytes` and `traffic_bytes` are the sizes of the cycle and
// of what each thread of traffic walks over.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>

#include "core/fail.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/idle_cycle.h"
#include "measure/experiments/teams.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/side_by_side/loads.h"
#include "measure/instruments/side_by_side/pace.h"
#include "measure/instruments/traffic/traffic_race.h"
#include "measure/instruments/worker_pool.h"
#include "memory/memory.h"

namespace headrace::experiment_loaded {

using namespace session;

namespace {

constexpr std::string_view kName = "loaded";
constexpr Parameter kParameters[] = {
    {"cpu_node", ParameterKind::node},
    {"memory_node", ParameterKind::node},
    {"traffic_cpu_node", ParameterKind::node},
    {"traffic_memory_node", ParameterKind::node},
    {"mix", ParameterKind::mix},
    {"load_percent", ParameterKind::count, false},
    {"delay_ns", ParameterKind::count, false},
    {"threads", ParameterKind::count, false},
};
// What all rows have.
constexpr auto kOfAll = std::span(kParameters).first<5>();
constexpr std::string_view kDetails[] = {"bandwidth"};

constexpr Bytes kLeastLoadedBuffer = 64_MiB;  // of the traffic
constexpr Nanoseconds kIdleTime = std::chrono::milliseconds{10};
constexpr Bytes kLeastTrafficArea = 64_KiB;  // of one thread, on the smallest node
constexpr Nanoseconds kObserveTime = std::chrono::milliseconds{30};
// One look for a pause.
constexpr Nanoseconds kPaceTime = std::chrono::milliseconds{3};
constexpr int kMostLooks = 5;  // for a share, on the average
constexpr int kLooksWhenBusy = 4;
constexpr double kUndisturbed = 0.95;  // part of the time that the threads had their CPUs
// Windows that are waited for until the bandwidth is steady; a row that was not is flagged.
constexpr int kWindows = 3;
constexpr std::array<std::uint64_t, 12> kLoads = {100, 95, 90, 80, 70, 60, 50, 40, 30, 20, 10, 1};
// What a small budget, curves of the family of mixes, and curves of memory farther away, leave out:
// they are seen without them.
constexpr std::array<std::uint64_t, 4> kBetweenLoads = {95, 70, 50, 30};
// The usual mixes, and those of traffic between other nodes and memories.
constexpr std::array<std::string_view, 4> kLoadedMixes = {"read", "2:1", "1:1", "nt_write"};

bool has(const auto& all, const auto& one) {
  return std::ranges::find(all, one) != std::ranges::end(all);
}

// The pauses that were found in this session, for as many threads of a mix on the same ground and
// by the same loop (traffic_race.h).
using PaceKey = std::tuple<std::string_view, std::size_t, std::string, std::string>;
using Paces = std::map<PaceKey, Pace>;

struct LoadedSetting {
  const Node* observer = nullptr;
  const Node* data = nullptr;
  const Node* traffic = nullptr;
  const Node* traffic_data = nullptr;
  const Mix* mix = nullptr;
  // One of both.
  std::optional<std::uint64_t> load = {};     // percent
  std::optional<std::uint64_t> delay = {};    // ns
  std::optional<std::uint64_t> threads = {};  // if asked for
  bool near = false;                          // the data is, to the observer
  CpuSet cpus = {};                           // the observer's first
  std::shared_ptr<Paces> paces = {};

  bool together() const { return observer == traffic && data == traffic_data; }
};

class Loaded final : public Probe {
 public:
  // The observer comes first among the CPUs, the others have an area each.
  Loaded(const LoadedSetting& setting, const IdleCycle& cycle, const TrafficKernel& kernel,
         const std::vector<TrafficArea>& areas, Pause pause, std::shared_ptr<BusMeter> bus)
      : cycle_(cycle),
        pause_(pause),
        bus_factor_(setting.mix->bus_factor()),
        cpus_(setting.cpus),
        kernel_name_(kernel.name()),
        bus_(std::move(bus)) {
    auto chase = std::make_unique<ChaseLoad>(cycle.at);
    observer_ = chase.get();
    loads_.push_back(std::move(chase));
    for (const TrafficArea& area : areas) {
      loads_.push_back(std::make_unique<TrafficLoad>(kernel, area, pause));
    }
    for (const auto& load : loads_) threads_.push_back(load.get());
  }

  Result<Sample> sample() override {
    HEADRACE_TRY_STATUS(side_by_side({cpus_.front()}, {threads_.front()}, kIdleTime));
    const double idle = observer_->mean_ns();
    HEADRACE_TRY(SideBySide seen, side_by_side(cpus_, threads_, kObserveTime / 3));
    double bandwidth = 0;
    double drift = 1;
    std::optional<double> counted;
    for (int window = 0; window < kWindows && drift > kSteady; ++window) {
      const double before = bandwidth_of(seen);
      const BusMeter::Window on_bus(*bus_);
      HEADRACE_TRY(seen, side_by_side(cpus_, threads_, kObserveTime));
      counted = on_bus.bytes();
      bandwidth = bandwidth_of(seen);
      drift = std::abs(bandwidth - before) / std::max(bandwidth, before);
    }
    cycle_.at = observer_->at();
    Sample sample{
        .value = observer_->mean_ns(),
        .details = observer_->percentiles(),
        .words = {{"kernel", kernel_name_},
                  {"observer", fmt::format("CPU {}", cpus_.front())},
                  {"traffic", "CPUs " + to_string(CpuSet{cpus_.begin() + 1, cpus_.end()})}},
        .cpu_share = seen.cpu_share};
    sample.details["idle"] = idle;
    sample.details["delay_ns"] = static_cast<double>(pause_.time.count());
    sample.details["drift"] = drift;
    sample.details["bandwidth"] = bandwidth;
    sample.details["bus"] = bandwidth * bus_factor_;
    // What the observer loads is no traffic.
    if (counted) *counted = std::max(0.0, *counted - seen.done.front() * kLine);
    const double moved = std::accumulate(seen.done.begin() + 1, seen.done.end(), 0.0);
    add_counted(sample, *bus_, counted, moved, bandwidth);
    return sample;
  }

 private:
  // The traffic's, without the observer.
  static double bandwidth_of(const SideBySide& seen) {
    return std::accumulate(seen.rates.begin() + 1, seen.rates.end(), 0.0);
  }

  const IdleCycle cycle_;
  const Pause pause_;
  const double bus_factor_;
  const CpuSet cpus_;
  const std::string kernel_name_;
  const std::shared_ptr<BusMeter> bus_;
  std::vector<std::unique_ptr<Load>> loads_;
  std::vector<Load*> threads_;
  const ChaseLoad* observer_ = nullptr;
};

// The observer's CPU and those of the traffic, spread as `order` is; only the first where there is
// no other.
CpuSet cpus_of(const Machine& machine, const LoadedSetting& setting,
               const std::vector<unsigned>& order) {
  const unsigned observer = observer_of(machine, usable_cpus(setting.observer));
  CpuSet cpus = beside(machine, observer, order);
  cpus.insert(cpus.begin(), observer);
  if (setting.threads > 0U && *setting.threads < cpus.size()) cpus.resize(*setting.threads + 1);
  return cpus;
}

// The pause of a setting: as asked for, or found, once a session.
Result<Pause> pause_of(const LoadedSetting& setting, const CpuSet& loading,
                       const TrafficKernel& kernel, const std::string& ground,
                       const std::vector<TrafficArea>& areas) {
  // At the frequency that these CPUs have while all of them are busy.
  HEADRACE_TRY(const DelayLoop loop, DelayLoop::timed_on(setting.cpus));
  if (setting.delay) {
    return loop.pause(Nanoseconds{static_cast<std::int64_t>(*setting.delay)});
  }
  Pace& pace = (*setting.paces)[{setting.mix->name, loading.size(), ground, kernel.name()}];
  const auto rate = [&](Nanoseconds pause) -> Result<double> {
    std::vector<TrafficLoad> loads;
    for (const TrafficArea& area : areas) loads.emplace_back(kernel, area, loop.pause(pause));
    std::vector<Load*> threads;
    for (TrafficLoad& load : loads) threads.push_back(&load);
    // What is remembered should not be another program's doing, which only takes bandwidth away.
    double most = 0;
    double share = 0;
    for (int look = 0; look < kLooksWhenBusy && share < kUndisturbed; ++look) {
      HEADRACE_TRY(const SideBySide seen, side_by_side(loading, threads, kPaceTime));
      most = std::max(most, std::accumulate(seen.rates.begin(), seen.rates.end(), 0.0));
      share = seen.cpu_share;
    }
    return most;
  };
  HEADRACE_TRY(const Nanoseconds found,
               pace.for_share(static_cast<double>(*setting.load) / 100, rate));
  return loop.pause(found);
}

unsigned rank_of(const LoadedSetting& setting) {
  const bool local = setting.near;
  const bool read = setting.mix->name == "read";
  const bool other = setting.mix->name == "1:1";
  const unsigned between = setting.load && has(kBetweenLoads, *setting.load) ? 2 : 0;
  if (!setting.together()) return 4;
  if (!has(kLoadedMixes, setting.mix->name)) return 5;
  return (read ? (local ? 1 : 2) : (local && !other ? 2 : 4)) + between;
}

Row loaded_row(const LoadedSetting& setting) {
  Row row = make_row(kName, kOfAll,
                     {id_of(setting.observer), id_of(setting.data), id_of(setting.traffic),
                      id_of(setting.traffic_data), std::string(setting.mix->name)},
                     "ns");
  if (setting.load) row.parameters.emplace_back("load_percent", *setting.load);
  if (setting.delay) row.parameters.emplace_back("delay_ns", *setting.delay);
  if (setting.threads) row.parameters.emplace_back("threads", *setting.threads);
  return row;
}

Point loaded_point(const Scope& scope, const LoadedSetting& setting) {
  const Machine& machine = scope.machine;
  Row row = loaded_row(setting);
  const CpuSet& cpus = setting.cpus;
  if (cpus.size() < 2) {
    return without(std::move(row), "one CPU cannot observe and load at once");
  }
  const CpuSet loading{cpus.begin() + 1, cpus.end()};
  if (setting.threads && *setting.threads != loading.size()) {
    return without(std::move(row), fmt::format("{} threads are no traffic here; give 1 to {}",
                                               *setting.threads, loading.size()));
  }
  const Bytes chased = fit(row, *setting.data, idle_cycle_bytes(row, machine, cpus.front()));
  const Bytes moved = fit(row, *setting.traffic_data,
                          past_caches(row, machine, loading, kCachesPassed, kLeastLoadedBuffer));
  Point point;
  point.row = std::move(row);
  point.row.cpus = list_of_cpus({cpus.begin(), cpus.end()});
  point.rank = rank_of(setting);
  point.memory = {setting.data->id, PageSize::transparent};
  point.cost = 4 * kObserveTime + 3 * kIdleTime;
  if (setting.load) point.cost += kMostLooks * kPaceTime;
  point.setup = {.name = fmt::format("loaded {}", raw(setting.traffic_data->id)),
                 .cost = touching(moved, cpus.size()) + idle_cycle_setup(chased).cost};
  const std::uint64_t page = base_page().value;
  const std::size_t each = moved.value / loading.size() / page * page;
  point.row.details["chased_bytes"] = static_cast<double>(chased.value);
  point.row.details["traffic_bytes"] = static_cast<double>(each);
  const std::string ground = ground_of(machine, *setting.traffic, *setting.traffic_data);
  point.races = {race_of(*setting.mix, loading.size(), ground)};
  point.prepare = [=, races = scope.races,
                   bus = scope.bus_of({setting.data->id, setting.traffic_data->id})](
                      BufferPool& buffers, Random& random) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const IdleCycle cycle,
                 idle_cycle(buffers, random, point.memory, chased, cpus.front()));
    HEADRACE_TRY(const auto traffic,
                 buffers.get({setting.traffic_data->id, PageSize::transparent}, 0, moved));
    if (each < kLeastTrafficArea.value) {
      return fail(ErrorCode::exhausted, "the node is too small for {} threads", loading.size());
    }
    std::vector<TrafficArea> areas;
    for (std::size_t i = 0; i < loading.size(); ++i) {
      areas.push_back(divide(*setting.mix, traffic.subspan(i * each, each)));
    }
    HEADRACE_TRY(const Shape shape, races->fastest(*setting.mix, loading, ground, areas));
    const TrafficKernel kernel(*setting.mix, shape);
    HEADRACE_TRY(const Pause pause, pause_of(setting, loading, kernel, ground, areas));
    return std::make_unique<Loaded>(setting, cycle, kernel, areas, pause, bus);
  };
  return point;
}

// Which of all combinations are worth a row unasked.
bool is_usual(const LoadedSetting& setting) {
  if (setting.together()) return true;
  if (setting.observer != setting.data) return false;
  if (setting.traffic == setting.observer) {
    return setting.traffic_data->kind != setting.data->kind;
  }
  return setting.traffic_data == setting.data;
}

// Whether a curve has points between the usual ones: of usual mixes to memory near, and what is
// asked for.
bool worth_all(const Scope& scope, const LoadedSetting& setting) {
  const bool usual = scope.asks("mix") || has(kLoadedMixes, setting.mix->name);
  return (setting.near && setting.together() && usual) || scope.asks("load_percent");
}

// Those asked for, else the usual ones; of memory near, without a budget, also the family.
std::vector<const Mix*> mixes_of(const Scope& scope, const LoadedSetting& setting) {
  std::vector<const Mix*> found;
  const auto add = [&](const Mix* mix) {
    if (mix != nullptr && !has(found, mix)) found.push_back(mix);
  };
  if (scope.asks("mix")) {
    for (const std::string& name : scope.words("mix")) add(find_mix(name));
    return found;
  }
  for (const Mix& mix : mixes()) {
    if (has(kLoadedMixes, mix.name)) add(&mix);
  }
  if (scope.budget || !setting.near || !setting.together()) return found;
  for (const Mix* mix : mixes_by_share()) add(mix);
  return found;
}

void add_curve(std::vector<Point>& points, const Scope& scope, LoadedSetting setting) {
  const auto add = [&] {
    if (!scope.wants(loaded_row(setting), kParameters)) return;
    points.push_back(loaded_point(scope, setting));
  };
  for (const std::uint64_t delay : scope.numbers("delay_ns")) {
    setting.delay = delay;
    add();
  }
  if (setting.delay) return;
  for (const std::uint64_t load : kLoads) {
    if (!worth_all(scope, setting) && has(kBetweenLoads, load)) continue;
    setting.load = load;
    add();
  }
}

// `order`: in which the CPUs of the traffic's node take threads.
void add_curves(std::vector<Point>& points, const Scope& scope, LoadedSetting setting,
                const std::vector<unsigned>& order) {
  setting.near = is_near(scope.machine, *setting.observer, *setting.data);
  std::vector<std::optional<std::uint64_t>> threads{std::nullopt};
  if (scope.asks("threads")) {
    const auto asked = scope.numbers("threads");
    threads.assign(asked.begin(), asked.end());
  }
  for (const auto& count : threads) {
    setting.threads = count;
    setting.cpus = cpus_of(scope.machine, setting, order);
    for (const Mix* const mix : mixes_of(scope, setting)) {
      setting.mix = mix;
      add_curve(points, scope, setting);
    }
  }
}

std::vector<Point> list_points(const Scope& scope) {
  const std::vector<const Node*> observers = nodes_with_cpus(scope.machine);
  const std::vector<const Node*> memories = memory_nodes(scope.machine);
  std::map<const Node*, std::vector<unsigned>> orders;
  for (const Node* node : observers) orders[node] = spread_order(scope.machine, *node);
  const auto paces = std::make_shared<Paces>();
  std::vector<Point> points;
  // Else many thousands of pairs would be gone through for each pair of nodes.
  const bool asked = scope.asks("traffic_cpu_node") || scope.asks("traffic_memory_node");
  for (const Node* observer : observers) {
    for (const Node* data : memories) {
      for (const Node* traffic : observers) {
        if (!asked && observer != data && traffic != observer) continue;
        for (const Node* traffic_data : memories) {
          LoadedSetting setting{.observer = observer,
                                .data = data,
                                .traffic = traffic,
                                .traffic_data = traffic_data,
                                .paces = paces};
          if (asked || is_usual(setting)) {
            add_curves(points, scope, std::move(setting), orders.at(traffic));
          }
        }
      }
    }
  }
  return points;
}

}  // namespace

const Experiment kExperiment{kName,       "latency of one core while others load the memory",
                             kParameters, kDetails,
                             list_points, 4,
                             true};

}  // namespace headrace::experiment_loaded
