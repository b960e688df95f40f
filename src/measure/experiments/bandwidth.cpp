// Bandwidth of each memory node from each node with CPUs, by mix of reads and writes and by number
// of threads.
//
// Each thread walks over its own part of one buffer, from front to back again and again, for a set
// time that all share; the rate is the sum of their rates. The buffer passes the caches of them all
// four times. What is counted is in traffic.h: the value is payload, `read_write` counts a copy's
// bytes twice (STREAM), `bus` adds the write-allocates.
#include <algorithm>

#include "core/fail.h"
#include "headrace/clock.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/traffic.h"
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
};

constexpr Bytes kLeastPerThread = 16_MiB;
constexpr Bytes kLeastArea = 64_KiB;  // of one thread, on the smallest node
constexpr Nanoseconds kWalkTime = std::chrono::milliseconds{20};
// Between two readings of the clock: some 10 us, so that threads stop together.
constexpr std::size_t kLinesPerReading = 4096;

class Walk final : public Probe {
 public:
  Walk(const Mix& mix, CpuSet cpus, std::span<std::byte> memory)
      : kernel_(mix), cpus_(std::move(cpus)) {
    const std::size_t each = memory.size() / cpus_.size() / 4096 * 4096;
    for (std::size_t i = 0; i < cpus_.size(); ++i) {
      areas_.push_back(divide(mix, memory.subspan(i * each, each)));
    }
  }

  Result<Sample> sample() override {
    std::vector<double> rates(cpus_.size());
    HEADRACE_TRY(const double share,
                 run_together(cpus_, [&](std::size_t i) { rates[i] = walk(areas_[i]); }));
    double lines = 0;
    for (const double rate : rates) lines += rate;
    const double read_write = lines * kLine;
    const Mix& mix = kernel_.mix();
    return Sample{.value = read_write * mix.payload_factor(),
                  .details = {{"read_write", read_write}, {"bus", read_write * mix.bus_factor()}},
                  .cpu_share = share};
  }

 private:
  // Lines per second.
  double walk(const TrafficArea& area) const {
    const std::size_t groups = kernel_.groups(area);
    const std::size_t at_once = std::min(groups, kLinesPerReading / kernel_.lines_per_group());
    const Nanoseconds begin = system_clock().now();
    Nanoseconds now = begin;
    std::size_t lines = 0;
    for (std::size_t at = 0; now - begin < kWalkTime; now = system_clock().now()) {
      if (at + at_once > groups) at = 0;
      lines += kernel_.run(area, at, at_once);
      at += at_once;
    }
    kernel_.finish();
    return static_cast<double>(lines) / seconds(system_clock().now() - begin);
  }

  const TrafficKernel kernel_;
  const CpuSet cpus_;
  std::vector<TrafficArea> areas_;
};

bool is_basic(const Mix& mix) { return mix.name == "read" || mix.name == "nt_write"; }

// A whole node and one core first, reading and writing.
unsigned rank_of(const Mix& mix, std::size_t threads, bool all_threads, bool near) {
  if (all_threads && is_basic(mix)) return near ? 0 : 1;
  if (threads == 1 && is_basic(mix)) return near ? 1 : 2;
  if (all_threads && near) return mix.name == "write" || mix.copies ? 1 : 2;
  return near ? 3 : 4;
}

// What a buffer holds for the CPUs of a node; the flags go to the rows of its points.
struct Wanted {
  Bytes bytes;
  std::vector<std::string> flags;
};

Point walk_point(const Node& cpu_node, const Node& memory_node, const Mix& mix, const CpuSet& cpus,
                 const Wanted& wanted, unsigned rank) {
  Point point;
  point.rank = rank;
  point.memory = {memory_node.id, PageSize::transparent};
  point.row = make_row(
      kName, kParameters,
      {id_of(&cpu_node), id_of(&memory_node), std::string(mix.name), std::uint64_t{cpus.size()}},
      "B/s");
  point.row.flags = wanted.flags;
  const Bytes bytes = fit(point.row, memory_node, wanted.bytes);
  point.cost = 4 * kWalkTime;
  point.setup = {.name = "walked", .cost = touching(bytes, usable_cpus(&cpu_node).size())};
  point.prepare = [key = point.memory, &mix, cpus, bytes](
                      BufferPool& buffers, Random&) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const auto memory, buffers.get(key, 0, bytes));
    if (memory.size() / cpus.size() < kLeastArea.value) {
      return fail(ErrorCode::exhausted, "the node is too small for {} threads", cpus.size());
    }
    return std::make_unique<Walk>(mix, cpus, memory);
  };
  return point;
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
    for (const Node& memory_node : machine.nodes) {
      if (!memory_node.byte_addressable() || !memory_node.capacity) continue;
      const bool near = is_near(machine, cpu_node, memory_node);
      for (const Mix& mix : mixes()) {
        for (const std::size_t threads : thread_counts(cpus.size())) {
          const CpuSet workers(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(threads));
          const bool all = threads == cpus.size();
          points.push_back(walk_point(cpu_node, memory_node, mix, workers, wanted,
                                      rank_of(mix, threads, all, near)));
          points.back().of_matrix = all && is_basic(mix);
        }
      }
    }
  }
  return points;
}

}  // namespace

const Experiment kExperiment{kName,       "bandwidth by node, mix of reads and writes, and threads",
                             kParameters, {},
                             list_points, 4,
                             true};

}  // namespace headrace::experiment_bandwidth
