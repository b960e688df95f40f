// SPDX-License-Identifier: Apache-2.0
// Loaded latency: a pointer chase on one CPU while others load a memory with a mix of traffic that
// pauses slow down.
//
// The points of a curve are shares of the traffic's full bandwidth. Their pauses are found by
// bisection (pace.h), since the effect of a pause depends on the machine. A request for `delay_ns`
// sets the pauses instead, one for `threads` the numbers of traffic threads, and one for a mix
// allows any mix.
//
// The value is the mean latency of the chase. The details have its percentiles, the pause, and the
// traffic's measured bandwidth, which is the axis of a plot (`bus_counted`: its counted part, where
// there is a counter). A point is taken once the bandwidth is steady: `drift` is the difference of
// the last two windows, of at most three.
//
// The chase is that of idle latency: same CPU, same cycle (idle_cycle.h). The detail `idle` is its
// time without traffic just before. The words name the observing CPU, the CPUs of the traffic and
// their loop (traffic_race.h). The details `chased_bytes` and `traffic_bytes` are the sizes of the
// cycle and of each traffic thread's memory.
//
// Observer, its data, traffic and the traffic's data each have a node. The default points are
// traffic from the observer's node to the observer's memory, to another kind of memory, and traffic
// from another node's CPUs. A request for a node of the traffic lists every combination. Without a
// budget, memory near the observer has a family of curves by share of reads in tenths
// (mixes_by_share).
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
// Parameters of all rows.
constexpr auto kOfAll = std::span(kParameters).first<5>();
constexpr std::string_view kDetails[] = {"bandwidth"};

constexpr Bytes kLeastLoadedBuffer = 64_MiB;  // of the traffic
constexpr Nanoseconds kIdleTime = std::chrono::milliseconds{10};
constexpr Bytes kLeastTrafficArea = 64_KiB;  // per thread, on the smallest node
constexpr Nanoseconds kObserveTime = std::chrono::milliseconds{30};
// Time per measurement of a pause.
constexpr Nanoseconds kPaceTime = std::chrono::milliseconds{3};
constexpr int kMostLooks = 5;  // per share, on average
constexpr int kLooksWhenBusy = 4;
constexpr double kUndisturbed = 0.95;  // CPU share of undisturbed threads
// Maximum windows until the bandwidth is steady; a row that is not steady is flagged.
constexpr int kWindows = 3;
constexpr std::array<std::uint64_t, 12> kLoads = {100, 95, 90, 80, 70, 60, 50, 40, 30, 20, 10, 1};
// Left out by a small budget, by curves of the family of mixes, and by curves of distant memory,
// whose shape shows without them.
constexpr std::array<std::uint64_t, 4> kBetweenLoads = {95, 70, 50, 30};
// The usual mixes, and those of traffic between other nodes and memories.
constexpr std::array<std::string_view, 4> kLoadedMixes = {"read", "2:1", "1:1", "nt_write"};

bool has(const auto& all, const auto& one) {
  return std::ranges::find(all, one) != std::ranges::end(all);
}

// The pauses found in this session, per number of threads, mix, ground and loop (traffic_race.h).
using PaceKey = std::tuple<std::string_view, std::size_t, std::string, std::string>;
using Paces = std::map<PaceKey, Pace>;

struct LoadedSetting {
  const Node* observer = nullptr;
  const Node* data = nullptr;
  const Node* traffic = nullptr;
  const Node* traffic_data = nullptr;
  const Mix* mix = nullptr;
  // One of `load` and `delay`.
  std::optional<std::uint64_t> load = {};     // percent
  std::optional<std::uint64_t> delay = {};    // ns
  std::optional<std::uint64_t> threads = {};  // if requested
  bool near = false;                          // the data is near the observer
  CpuSet cpus = {};                           // the observer's first
  std::shared_ptr<Paces> paces = {};

  bool together() const { return observer == traffic && data == traffic_data; }
};

class Loaded final : public Probe {
 public:
  // The observer is the first of the CPUs; the others have an area each.
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
    // The observer's loads are not traffic.
    if (counted) *counted = std::max(0.0, *counted - seen.done.front() * kLine);
    const double moved = std::accumulate(seen.done.begin() + 1, seen.done.end(), 0.0);
    add_counted(sample, *bus_, counted, moved, bandwidth);
    return sample;
  }

 private:
  // The traffic's bandwidth, without the observer.
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

// The observer's CPU and those of the traffic, in the order of `order`; only the first if there is
// no other.
CpuSet cpus_of(const Machine& machine, const LoadedSetting& setting,
               const std::vector<unsigned>& order) {
  const unsigned observer = observer_of(machine, usable_cpus(setting.observer));
  CpuSet cpus = beside(machine, observer, order);
  cpus.insert(cpus.begin(), observer);
  if (setting.threads > 0U && *setting.threads < cpus.size()) cpus.resize(*setting.threads + 1);
  return cpus;
}

// The pause of a setting: as requested, or found once per session.
Result<Pause> pause_of(const LoadedSetting& setting, const CpuSet& loading,
                       const TrafficKernel& kernel, const std::string& ground,
                       const std::vector<TrafficArea>& areas) {
  // At the frequency of these CPUs while all of them are busy.
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
    // Keeps the best: another program can only take bandwidth away, and must not be remembered.
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
    const auto areas = divide(*setting.mix, equal_parts(traffic, loading.size()));
    HEADRACE_TRY(const Shape shape, races->fastest(*setting.mix, loading, ground, areas));
    const TrafficKernel kernel(*setting.mix, shape);
    HEADRACE_TRY(const Pause pause, pause_of(setting, loading, kernel, ground, areas));
    return std::make_unique<Loaded>(setting, cycle, kernel, areas, pause, bus);
  };
  return point;
}

// Whether a combination has rows by default.
bool is_usual(const LoadedSetting& setting) {
  if (setting.together()) return true;
  if (setting.observer != setting.data) return false;
  if (setting.traffic == setting.observer) {
    return setting.traffic_data->kind != setting.data->kind;
  }
  return setting.traffic_data == setting.data;
}

// Whether a curve has the points between the usual ones: usual mixes to near memory, and requested
// mixes.
bool worth_all(const Scope& scope, const LoadedSetting& setting) {
  const bool usual = scope.asks("mix") || has(kLoadedMixes, setting.mix->name);
  return (setting.near && setting.together() && usual) || scope.asks("load_percent");
}

// The requested mixes, else the usual ones; without a budget near memory also has the family.
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

// `order`: the order in which CPUs of the traffic's node take threads.
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
  // Without this, each pair of nodes would go through many thousands of pairs.
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
