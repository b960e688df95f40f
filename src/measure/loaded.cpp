// Loaded latency: a pointer chase on one CPU while the others load the memory with a mix of traffic
// that is slowed down by a delay.
//
// The value is the mean latency of the chase; the details give its percentiles (of groups of 16
// loads: one load alone is shorter than reading the clock) and the bandwidth that the traffic
// really reached meanwhile, which is the axis to draw it against: what a delay gives depends on the
// machine and says nothing. That the traffic ran from before the first load to after the last one
// is checked, not assumed.
#include <algorithm>
#include <array>

#include "core/fail.h"
#include "headrace/histogram.h"
#include "measure/chase.h"
#include "measure/experiment.h"
#include "measure/team.h"
#include "measure/ticks.h"
#include "measure/timed.h"
#include "measure/traffic.h"

namespace headrace {
namespace {

constexpr std::uint64_t kCachesLoaded = 4;
constexpr Bytes kLeastLoadedBuffer = 64_MiB;
constexpr Bytes kLeastTrafficArea = 64_KiB;  // of one thread, on the smallest node
constexpr Nanoseconds kObserveTime = std::chrono::milliseconds{30};
// The traffic runs alone first: its bandwidth is unsteady at its start.
constexpr Nanoseconds kSettle = std::chrono::milliseconds{5};
constexpr Nanoseconds kLongestStart = std::chrono::seconds{2};
// Lines moved between two delays: 1 KiB, as Intel's checker moves.
constexpr std::size_t kLinesPerDelay = 16;
constexpr std::array<std::uint64_t, 10> kDelays = {0,   25,  50,   100,  200,
                                                   400, 800, 1600, 6400, 25600};
constexpr std::array<std::string_view, 4> kLoadedMixes = {"read", "2:1", "1:1", "nt_write"};

// Counted by the one that moves them, read by the observer. On a line of its own, since a shared
// one would itself be traffic.
struct alignas(64) Counter {
  std::atomic<std::uint64_t> lines{0};
};

class Loaded final : public Probe {
 public:
  struct Setting {
    unsigned observer = 0;
    CpuSet traffic;
    const Mix* mix = nullptr;
    Nanoseconds delay{0};
  };
  Loaded(Setting setting, void* start, std::span<std::byte> memory)
      : setting_(std::move(setting)), kernel_(*setting_.mix), at_(start) {
    const std::size_t each = memory.size() / setting_.traffic.size() / 4096 * 4096;
    for (std::size_t i = 0; i < setting_.traffic.size(); ++i) {
      areas_.push_back(divide(*setting_.mix, memory.subspan(i * each, each)));
    }
  }

  Result<Sample> sample() override {
    CpuSet cpus = setting_.traffic;
    cpus.push_back(setting_.observer);
    std::vector<Counter> counters(areas_.size());
    std::vector<double> shares(cpus.size());
    std::vector<std::uint64_t> first(areas_.size());
    std::vector<std::uint64_t> last(areas_.size());
    std::atomic<bool> done{false};
    Start start(cpus.size());
    Seen seen;
    HEADRACE_TRY_STATUS(run_pinned(cpus, [&](std::size_t i) {
      start.meet();
      const CpuShare share;
      if (i < areas_.size()) {
        first[i] = Ticks::instance().now();
        load(areas_[i], counters[i].lines, done);
        last[i] = Ticks::instance().now();
      } else {
        seen = observe(counters);
        done = true;
      }
      shares[i] = share.now();
    }));
    if (std::ranges::max(first) > seen.begin || std::ranges::min(last) < seen.end) {
      return fail(ErrorCode::io, "the traffic did not run all the while; is the machine busy?");
    }
    Sample sample{.value = seen.mean_ns,
                  .details = {{"bandwidth", seen.lines_per_second * kLine},
                              {"bus", seen.lines_per_second * kLine * setting_.mix->bus_factor()}},
                  .cpu_share = std::ranges::min(shares)};
    for (const auto& [name, value] : seen.percentiles) sample.details[name] = value;
    return sample;
  }

 private:
  struct Seen {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    double mean_ns = 0;
    double lines_per_second = 0;
    std::map<std::string, double> percentiles;
  };

  void load(const TrafficArea& area, std::atomic<std::uint64_t>& lines,
            const std::atomic<bool>& done) const {
    const Ticks& ticks = Ticks::instance();
    const std::uint64_t delay = ticks.ticks(setting_.delay);
    const std::size_t at_once =
        std::max<std::size_t>(1, kLinesPerDelay / kernel_.lines_per_group());
    const std::size_t groups = kernel_.groups(area) / at_once * at_once;
    for (std::size_t at = 0; !done.load(std::memory_order_relaxed);) {  // pairs with done = true
      const std::size_t moved = kernel_.run(area, at, at_once);
      // Only this thread writes it; pairs with the observer's sum().
      lines.store(lines.load(std::memory_order_relaxed) + moved, std::memory_order_relaxed);
      at = at + at_once >= groups ? 0 : at + at_once;
      if (delay == 0) continue;
      for (const std::uint64_t until = ticks.now() + delay; ticks.now() < until;) {
      }
    }
  }

  static std::uint64_t sum(const std::vector<Counter>& counters) {
    std::uint64_t lines = 0;
    for (const Counter& counter : counters) {
      lines += counter.lines.load(std::memory_order_relaxed);  // pairs with load()
    }
    return lines;
  }

  static bool all_move(const std::vector<Counter>& counters) {
    return std::ranges::all_of(counters, [](const Counter& counter) {
      return counter.lines.load(std::memory_order_relaxed) > 0;  // pairs with load()
    });
  }

  Seen observe(const std::vector<Counter>& counters) {
    const Ticks& ticks = Ticks::instance();
    const std::uint64_t settled = ticks.now() + ticks.ticks(kSettle);
    // Until all traffic runs: a busy machine may start a thread late. Bounded, since then the check
    // of sample() tells.
    const std::uint64_t latest = settled + ticks.ticks(kLongestStart);
    for (auto now = ticks.now(); now < settled || (now < latest && !all_move(counters));
         now = ticks.now()) {
      at_ = chase(at_, kChaseUnroll);
    }
    Histogram groups;
    Seen seen;
    seen.begin = ticks.now();
    const std::uint64_t lines = sum(counters);
    const std::uint64_t enough = seen.begin + ticks.ticks(kObserveTime);
    std::uint64_t count = 0;
    std::uint64_t inside = 0;
    for (std::uint64_t now = seen.begin; now < enough; ++count) {
      at_ = chase(at_, kChaseUnroll);
      const std::uint64_t then = std::exchange(now, ticks.now());
      const std::uint64_t span = now - then - std::min(now - then, ticks.overhead());
      inside += span;
      // In picoseconds per load, since the histogram counts whole numbers.
      groups.record(static_cast<std::uint64_t>(ticks.nanoseconds(span) * 1000 / kChaseUnroll));
    }
    seen.end = ticks.now();
    seen.lines_per_second =
        static_cast<double>(sum(counters) - lines) / seconds(ticks.span(seen.begin, seen.end));
    seen.mean_ns = ticks.nanoseconds(inside) / static_cast<double>(count * kChaseUnroll);
    for (const auto& [name, q] :
         {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}}) {
      if (const auto value = groups.quantile(q)) {
        seen.percentiles[name] = static_cast<double>(*value) / 1000;
      }
    }
    return seen;
  }

  const Setting setting_;
  const TrafficKernel kernel_;
  void* at_;
  std::vector<TrafficArea> areas_;
};

Row loaded_row(const Node& cpu_node, const Node& memory_node, std::string_view mix,
               std::uint64_t delay) {
  const auto id = [](const Node& node) { return std::uint64_t{raw(node.id)}; };
  return {.experiment = "loaded",
          .parameters = {{"cpu_node", id(cpu_node)},
                         {"memory_node", id(memory_node)},
                         {"traffic_cpu_node", id(cpu_node)},
                         {"traffic_memory_node", id(memory_node)},
                         {"mix", std::string(mix)},
                         {"delay_ns", delay}},
          .unit = "ns"};
}

Point loaded_point(const Node& cpu_node, const Node& memory_node, const CpuSet& cpus, Bytes wanted,
                   std::string_view mix, std::uint64_t delay, unsigned rank) {
  Point point;
  point.rank = rank;
  point.memory = {memory_node.id, PageSize::transparent};
  point.row = loaded_row(cpu_node, memory_node, mix, delay);
  const Bytes bytes = fit(point.row, memory_node, wanted);
  point.cost = 4 * (kObserveTime + kSettle) + Nanoseconds{bytes.value * 40 / kLine};
  const Loaded::Setting setting{.observer = cpus.front(),
                                .traffic = {cpus.begin() + 1, cpus.end()},
                                .mix = find_mix(mix),
                                .delay = Nanoseconds{static_cast<std::int64_t>(delay)}};
  point.prepare = [key = point.memory, setting, bytes](
                      Arenas& arenas, Random& random) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const auto chased, arenas.get(key, 1, bytes));
    HEADRACE_TRY(const auto moved, arenas.get(key, 0, bytes));
    if (moved.size() / setting.traffic.size() < kLeastTrafficArea.value) {
      return fail(ErrorCode::exhausted, "the node is too small for {} threads",
                  setting.traffic.size());
    }
    void* start = nullptr;
    HEADRACE_TRY_STATUS(run_pinned(
        {setting.observer}, [&](std::size_t) { start = make_cycle(chased, 2_MiB, random); }));
    return std::make_unique<Loaded>(setting, start, moved);
  };
  return point;
}

}  // namespace

std::vector<Point> loaded_points(const Machine& machine) {
  std::vector<Point> points;
  for (const Node& cpu_node : machine.nodes) {
    const CpuSet cpus = usable_cpus(&cpu_node);
    if (cpus.empty() || !cpu_node.byte_addressable()) continue;
    const Bytes bytes = std::max(kLeastLoadedBuffer, cache_to_pass(machine, cpus) * kCachesLoaded);
    for (const Node& memory_node : machine.nodes) {
      if (!memory_node.byte_addressable() || !memory_node.capacity) continue;
      const bool local = &memory_node == &cpu_node;
      for (const std::string_view mix : kLoadedMixes) {
        for (const std::uint64_t delay : kDelays) {
          if (cpus.size() < 2) {
            points.push_back(without(loaded_row(cpu_node, memory_node, mix, delay),
                                     "one CPU cannot observe and load at once"));
            continue;
          }
          const unsigned rank = mix == "read" ? (local ? 1 : 2) : (local ? 2 : 4);
          points.push_back(loaded_point(cpu_node, memory_node, cpus, bytes, mix, delay, rank));
        }
      }
    }
  }
  return points;
}

}  // namespace headrace
