// SPDX-License-Identifier: Apache-2.0
// Bandwidth of each memory node from each node with CPUs, by mix of reads and writes and by number
// of threads.
//
// Each thread walks repeatedly over its own part of one buffer, for a set time and until the time
// of all threads is over. A race on the measured memory chooses the loop (traffic_race.h), and the
// word `kernel` names it. The value is the sum of the threads' rates. The buffer has four times the
// size of all their caches. Beside the CPUs of a node, those of a socket and of the machine work
// together (teams.h), each in its part of memory near it, far from it, or interleaved over all
// nodes of a kind.
//
// Counting is that of traffic.h: the value is payload, `read_write` counts a copy's bytes twice
// (STREAM), `bus` adds the write-allocates, and `bus_counted` is the counted bus traffic, where
// there is a counter (bus_counter.h).
//
// `pattern` "random": each thread reads or writes blocks of `block` bytes at independent random
// places of its part (random_traffic.h). TLB misses are included; the detail `huge_part` is the
// share of memory in huge pages.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/teams.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/lockstep.h"
#include "measure/instruments/traffic/random_traffic.h"
#include "measure/instruments/traffic/traffic_race.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_bandwidth {

using namespace session;

namespace {

constexpr std::string_view kName = "bandwidth";
constexpr Parameter kParameters[] = {
    {"cpu_node", ParameterKind::node},
    {"memory_node", ParameterKind::node},
    {"mix", ParameterKind::mix},
    {"threads", ParameterKind::any, false},
    kOn,
    kPlaced,
    kOrder,
    {"pattern", ParameterKind::word, false},
    {"block", ParameterKind::count, false},
};
// Parameters of rows of a node's CPUs.
constexpr auto kOfNodes = std::span(kParameters).first<4>();

constexpr Bytes kLeastPerThread = 16_MiB;
constexpr std::array kBlocks = {64_B, 256_B, 4_KiB};
constexpr Bytes kLeastArea = 64_KiB;  // per thread, on the smallest node
// An index of its own in the pool: random walks use a larger buffer than ordered ones.
constexpr std::size_t kRandomBuffer = 1;
constexpr Nanoseconds kWalkTime = std::chrono::milliseconds{20};
// Per reading of the clock, which waits for the loads in flight: about 50 us, so that threads stop
// together.
constexpr std::size_t kLinesPerReading = 16384;

// Walks by a TrafficKernel or RandomTraffic.
template <class Kernel>
class Walk final : public Probe {
 public:
  Walk(const Kernel& kernel, CpuSet cpus, std::vector<TrafficArea> areas,
       std::shared_ptr<BusMeter> bus, std::map<std::string, double> known = {})
      : kernel_(kernel),
        cpus_(std::move(cpus)),
        areas_(std::move(areas)),
        bus_(std::move(bus)),
        known_(std::move(known)) {}

  Result<Sample> sample() override {
    std::vector<CommonEnd::Timed> parts(cpus_.size());
    CommonEnd end(cpus_.size());
    const BusMeter::Window window(*bus_);
    HEADRACE_TRY(const double share,
                 run_together(cpus_, [&](std::size_t i) { parts[i] = walk(areas_[i], end); }));
    const std::optional<double> counted = window.bytes();
    double moved = 0;
    double read_write = 0;
    for (const CommonEnd::Timed& part : parts) {
      moved += part.moved;
      read_write += part.done / part.seconds;
    }
    const Mix& mix = kernel_.mix();
    Sample sample{.value = read_write * mix.payload_factor(),
                  .details = {{"read_write", read_write}, {"bus", read_write * mix.bus_factor()}},
                  .words = {{"kernel", kernel_.name()}},
                  .cpu_share = share};
    sample.details.insert(known_.begin(), known_.end());
    add_counted(sample, *bus_, counted, moved, read_write);
    return sample;
  }

 private:
  // Returns bytes.
  CommonEnd::Timed walk(const TrafficArea& area, CommonEnd& end) const {
    const std::size_t rounds = kernel_.rounds(area);
    const std::size_t at_once =
        std::clamp<std::size_t>(kLinesPerReading / kernel_.lines_per_round(), 1, rounds);
    std::size_t at = 0;
    const CommonEnd::Timed timed = end.work(kWalkTime, [&] {
      if (at + at_once > rounds) at = 0;
      const std::size_t lines = kernel_.run(area, at, at_once);
      at += at_once;
      return static_cast<double>(lines * kLine);
    });
    kernel_.finish();
    return timed;
  }

  const Kernel kernel_;
  const CpuSet cpus_;
  const std::vector<TrafficArea> areas_;
  const std::shared_ptr<BusMeter> bus_;
  const std::map<std::string, double> known_;  // details of all samples
};

// One thread per CPU, each in its part of memory.
Result<std::unique_ptr<Probe>> walk_by(const Mix& mix, const CpuSet& cpus,
                                       const std::string& ground,
                                       const std::vector<std::span<std::byte>>& parts,
                                       std::shared_ptr<BusMeter> bus, Races& races) {
  std::vector<TrafficArea> areas = divide(mix, parts);
  HEADRACE_TRY(const Shape shape, races.fastest(mix, cpus, ground, areas));
  return std::make_unique<Walk<TrafficKernel>>(TrafficKernel(mix, shape), cpus, std::move(areas),
                                               std::move(bus));
}

bool is_basic(const Mix& mix) { return mix.name == "read" || mix.name == "nt_write"; }

// First a whole node and one core, reading and writing.
unsigned rank_of(const Mix& mix, std::size_t threads, bool all_threads, bool near) {
  if (all_threads && is_basic(mix)) return near ? 0 : 1;
  if (threads == 1 && is_basic(mix)) return near ? 1 : 2;
  if (all_threads && near) return mix.name == "write" || mix.copies ? 1 : 2;
  return near ? 3 : 4;
}

// The buffer for the CPUs of a node; its flags are added to the rows of its points.
struct Wanted {
  Bytes bytes;
  std::vector<std::string> flags;
};

Point walk_point(const Scope& scope, const Node& cpu_node, const Node& memory_node, const Mix& mix,
                 const CpuSet& cpus, const Wanted& wanted, unsigned rank) {
  Point point;
  point.rank = rank;
  point.memory = {memory_node.id, PageSize::transparent};
  point.row = make_row(
      kName, kOfNodes,
      {id_of(&cpu_node), id_of(&memory_node), std::string(mix.name), std::uint64_t{cpus.size()}},
      "B/s");
  point.row.flags = wanted.flags;
  point.row.cpus = to_string(cpus);
  const Bytes bytes = fit(point.row, memory_node, wanted.bytes);
  point.cost = 4 * kWalkTime;
  const std::string ground = ground_of(scope.machine, cpu_node, memory_node);
  point.races = {race_of(mix, cpus.size(), ground)};
  point.setup = {.name = "walked", .cost = touching(bytes, usable_cpus(&cpu_node).size())};
  point.prepare = [key = point.memory, &mix, cpus, bytes, ground, races = scope.races,
                   bus = scope.bus_of({memory_node.id})](
                      BufferPool& buffers, Random&) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const auto memory, buffers.get(key, 0, bytes));
    if (memory.size() / cpus.size() < kLeastArea.value) {
      return fail(ErrorCode::exhausted, "the node is too small for {} threads", cpus.size());
    }
    return walk_by(mix, cpus, ground, equal_parts(memory, cpus.size()), bus, *races);
  };
  return point;
}

// First all CPUs of the node on memory near them.
unsigned rank_at_random(const Mix& mix, Bytes block, bool all_threads, bool near) {
  if (!near || !all_threads) return 4;
  return mix.name == "read" && block == kBlocks.front() ? 2 : 3;
}

// Each thread walks over at least its share of the wanted bytes.
Point random_point(const Scope& scope, const Node& cpu_node, const Node& memory_node,
                   const Mix& mix, const CpuSet& cpus, Bytes block, const Wanted& wanted,
                   unsigned rank) {
  Point point = walk_point(scope, cpu_node, memory_node, mix, cpus, wanted, rank);
  point.races.clear();  // there is only one loop
  point.row.parameters.emplace_back("pattern", std::string("random"));
  point.row.parameters.emplace_back("block", block.value);
  const std::uint64_t threads = cpus.size();
  const Bytes each = random_area(mix, Bytes{(wanted.bytes.value + threads - 1) / threads});
  const Bytes bytes = fit(point.row, memory_node, each * threads);
  point.setup = {.name = "walked at random",
                 .cost = touching(bytes, usable_cpus(&cpu_node).size())};
  point.prepare = [key = point.memory, &mix, cpus, block, bytes,
                   bus = scope.bus_of({memory_node.id})](
                      BufferPool& buffers, Random&) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const auto memory, buffers.get(key, kRandomBuffer, bytes));
    if (memory.size() / cpus.size() < kLeastArea.value) {
      return fail(ErrorCode::exhausted, "the node is too small for {} threads", cpus.size());
    }
    return std::make_unique<Walk<RandomTraffic>>(
        RandomTraffic(mix, block.value), cpus, divide(mix, equal_parts(memory, cpus.size())), bus,
        std::map<std::string, double>{{"huge_part", BufferPool::huge_part(memory)}});
  };
  return point;
}

unsigned rank_of_team(const Mix& mix, const MeasuredTeam& measured, TeamMemory how) {
  if (!measured.whole) return measured.order || how != TeamMemory::near ? 4 : 3;
  if (how != TeamMemory::near) return is_basic(mix) ? 2 : 4;
  const bool machine = measured.part == TeamPart::machine;
  if (is_basic(mix)) return machine ? 0 : 1;
  return machine ? 2 : 3;
}

Point team_point(const Scope& scope, const MeasuredTeam& measured, const Mix& mix,
                 const TeamNodes& nodes) {
  const std::size_t threads = measured.team.cpus.size();
  Point point;
  point.rank = rank_of_team(mix, measured, nodes.how);
  point.memory = {nodes.all.front(), PageSize::transparent};
  point.row = team_row(make_row(kName, kOfNodes,
                                {list_of(measured.team.nodes()), list_of(nodes.all),
                                 std::string(mix.name), std::uint64_t{threads}},
                                "B/s"),
                       measured, nodes.how);
  const CpuSet cpus = measured.team.sorted();
  const Bytes wanted =
      past_caches(point.row, scope.machine, cpus, kCachesPassed, kLeastPerThread * threads);
  const Bytes bytes = fit_team(point.row, scope, nodes, threads, wanted) / threads;
  point.cost = 4 * kWalkTime;
  point.setup = {.name = fmt::format("walked by {}", point.row.cpus),
                 .cost = touching(bytes * threads, threads)};
  const std::string ground =
      fmt::format("{} {} of {}", to_string(nodes.how), list_of(nodes.all), point.row.cpus);
  point.races = {race_of(mix, threads, ground)};
  point.prepare = [nodes, &mix, cpus = measured.team.cpus, bytes, ground, races = scope.races,
                   bus = scope.bus_of(nodes.all)](BufferPool& buffers,
                                                  Random&) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const auto parts, team_parts(buffers, nodes, cpus.size(), 0, bytes));
    if (parts.front().size() < kLeastArea.value) {
      return fail(ErrorCode::exhausted, "a node is too small for {} threads", cpus.size());
    }
    return walk_by(mix, cpus, ground, parts, bus, *races);
  };
  return point;
}

void list_teams(const Scope& scope, std::vector<Point>& points) {
  for (const MeasuredTeam& measured : measured_teams(scope)) {
    for (const NodeKind kind : kinds_of_memory(scope.machine)) {
      for (const TeamMemory how : {TeamMemory::near, TeamMemory::interleave, TeamMemory::far}) {
        if (how != TeamMemory::near && measured.order) continue;
        const auto nodes = team_nodes(scope.machine, measured.team, kind, how);
        if (!nodes) continue;
        for (const Mix& mix : mixes()) {
          if (!is_basic(mix) && (!measured.whole || how != TeamMemory::near)) continue;
          points.push_back(team_point(scope, measured, mix, *nodes));
        }
      }
    }
  }
}

// Default: reads of each block size and writes of single lines, by all near CPUs. On request any
// mix without copies. None if the session requests something else.
void list_random(const Scope& scope, const Node& cpu_node, const Node& memory_node,
                 const std::vector<unsigned>& order, const Wanted& wanted,
                 std::vector<Point>& points) {
  const bool asked = scope.asks("pattern") || scope.asks("block");
  const bool near = is_near(scope.machine, cpu_node, memory_node);
  if (!asked && (!scope.only.empty() || !near)) return;
  for (const Mix& mix : mixes()) {
    for (const std::size_t threads : thread_counts(order.size())) {
      for (const Bytes block : kBlocks) {
        const bool all = threads == order.size();
        const bool usual =
            mix.name == "read" || (mix.name == "nt_write" && block == kBlocks.front());
        if (mix.copies || (!asked && !(usual && all))) continue;
        points.push_back(random_point(scope, cpu_node, memory_node, mix, first_of(order, threads),
                                      block, wanted, rank_at_random(mix, block, all, near)));
      }
    }
  }
}

std::vector<Point> list_points(const Scope& scope) {
  const Machine& machine = scope.machine;
  std::vector<Point> points;
  for (const Node& cpu_node : machine.nodes) {
    const CpuSet cpus = usable_cpus(&cpu_node);
    if (cpus.empty() || !cpu_node.byte_addressable()) continue;
    Row marked;
    const Bytes bytes =
        past_caches(marked, machine, cpus, kCachesPassed, kLeastPerThread * cpus.size());
    const Wanted wanted{bytes, marked.flags};
    const std::vector<unsigned> order = spread_order(machine, cpu_node);
    for (const Node& memory_node : machine.nodes) {
      if (!has_memory(memory_node)) continue;
      const bool near = is_near(machine, cpu_node, memory_node);
      for (const Mix& mix : mixes()) {
        for (const std::size_t threads : thread_counts(cpus.size())) {
          const CpuSet workers = first_of(order, threads);
          const bool all = threads == cpus.size();
          points.push_back(walk_point(scope, cpu_node, memory_node, mix, workers, wanted,
                                      rank_of(mix, threads, all, near)));
          points.back().of_matrix = all && is_basic(mix);
          if (near) stand_for_team(points.back().row, scope, cpu_node);
        }
      }
      list_random(scope, cpu_node, memory_node, order, wanted, points);
    }
  }
  list_teams(scope, points);
  return points;
}

}  // namespace

const Experiment kExperiment{
    kName,       "bandwidth by nodes, mix of reads and writes, and threads",
    kParameters, {},
    list_points, 4,
    true};

}  // namespace headrace::experiment_bandwidth
