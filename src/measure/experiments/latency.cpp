// SPDX-License-Identifier: Apache-2.0
// Idle load-to-use latency, by a pointer chase (chase.h says how and why).
//
// Three questions: how far is each node (all CPU nodes x all memory nodes, the whole buffer as one
// window, huge pages and small ones: the difference is the TLB); what does the order of the lines
// do (the window from one page to all); and where do the caches end (the size of the working set).
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/idle_cycle.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/ticks.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_latency {

using namespace session;

namespace {

constexpr std::string_view kName = "latency";
constexpr Parameter kParameters[] = {
    {"cpu_node", ParameterKind::node}, {"memory_node", ParameterKind::node},
    {"bytes", ParameterKind::count},   {"window", ParameterKind::count_or_all},
    {"pages", ParameterKind::word},
};

// Per repetition: long against the clock and a stray interrupt, short against the drift of a shared
// machine.
constexpr Nanoseconds kChaseTime = std::chrono::milliseconds{10};

class Chase final : public Probe {
 public:
  Chase(unsigned cpu, void* start) : cpu_(cpu), own_(start), at_(own_) {}
  Chase(unsigned cpu, const IdleCycle& cycle) : cpu_(cpu), at_(cycle.at) {}

  Result<Sample> sample() override {
    Sample sample;
    HEADRACE_TRY_STATUS(run_pinned({cpu_}, [&](std::size_t) {
      const Ticks& ticks = Ticks::instance();
      at_ = chase(at_, kWarmUp);
      const CpuShare share;
      const std::uint64_t begin = ticks.now();
      const std::uint64_t enough = begin + ticks.ticks(kChaseTime);
      std::size_t steps = 0;
      std::uint64_t end = begin;
      while (end < enough) {
        at_ = chase(at_, kStep);
        steps += kStep;
        end = ticks.now();
      }
      sample.value = ticks.nanoseconds(end - begin) / static_cast<double>(steps);
      sample.cpu_share = share.now();
    }));
    sample.words["observer"] = fmt::format("CPU {}", cpu_);
    return sample;
  }

 private:
  static constexpr std::size_t kStep = 4096;
  static constexpr std::size_t kWarmUp = 16384;

  const unsigned cpu_;
  void* own_ = nullptr;
  void*& at_;
};

struct Place {
  const Node* cpu_node;
  const Node* memory_node;
  unsigned cpu;
  Bytes buffer;
  std::vector<std::string> flags = {};  // of its rows
};

Point chase_point(const Place& place, Bytes bytes, Bytes window, PageSize pages, unsigned rank) {
  Point point;
  point.rank = rank;
  point.memory = {place.memory_node->id, pages};
  point.row = make_row(kName, kParameters,
                       {id_of(place.cpu_node), id_of(place.memory_node), bytes.value,
                        window.value == 0 ? ParameterValue("all") : ParameterValue(window.value),
                        std::string(page_word(pages))},
                       "ns");
  point.row.flags = place.flags;
  point.row.cpus = list_of_cpus({place.cpu});
  // The cycle through the whole buffer lies in one of its own and is the same
  // for all CPUs.
  const bool whole = bytes == place.buffer && window.value == 0;
  point.of_matrix = whole;
  // Making a cycle costs some 40 ns per line.
  const Nanoseconds linking{static_cast<std::int64_t>(bytes.value * 40 / kLine)};
  const Nanoseconds touched = touching(place.buffer, 8);
  point.cost = 3 * kChaseTime + std::chrono::milliseconds{2} + (whole ? Nanoseconds{0} : linking);
  point.setup = whole ? idle_cycle_setup(bytes) : SharedSetup{.name = "chased", .cost = touched};
  point.prepare = [=](BufferPool& buffers, Random& random) -> Result<std::unique_ptr<Probe>> {
    if (whole) {
      HEADRACE_TRY(const IdleCycle cycle,
                   idle_cycle(buffers, random, point.memory, bytes, place.cpu));
      return std::make_unique<Chase>(place.cpu, cycle);
    }
    HEADRACE_TRY(const auto memory, buffers.get(point.memory, 0, place.buffer));
    void* start = nullptr;
    // By the CPU that will chase: what it writes last it has in its caches, as
    // a program would.
    HEADRACE_TRY_STATUS(run_pinned({place.cpu}, [&](std::size_t) {
      start = make_cycle(memory.first(bytes.value), window, random);
    }));
    return std::make_unique<Chase>(place.cpu, start);
  };
  return point;
}

void add_place(std::vector<Point>& points, const Place& place, bool local) {
  const Bytes all{0};
  const unsigned further = local ? 0 : 1;
  points.push_back(chase_point(place, place.buffer, all, PageSize::transparent, 0));
  points.push_back(chase_point(place, place.buffer, all, PageSize::base, 1 + further));
  if (!local) return;
  for (const Bytes window : {4_KiB, 64_KiB, 256_KiB, 2_MiB, 32_MiB}) {
    if (window >= place.buffer) continue;
    points.push_back(chase_point(place, place.buffer, window, PageSize::transparent, 3));
    points.push_back(chase_point(place, place.buffer, window, PageSize::base, 4));
  }
  for (Bytes bytes = 4_KiB; bytes < place.buffer; bytes = bytes * 2) {
    points.push_back(chase_point(place, bytes, all, PageSize::transparent, 2));
  }
}

// A larger working set than the usual, asked for by its size: of memory behind a memory-side cache.
void add_larger(std::vector<Point>& points, Place place, const std::vector<std::uint64_t>& asked) {
  const Bytes usual = place.buffer;
  const std::vector<std::string> flags = place.flags;
  for (const std::uint64_t size : asked) {
    const Bytes bytes{size};
    if (bytes <= usual || bytes.value % (4_KiB).value != 0) continue;
    Row marked;
    marked.flags = flags;
    mark_side_cached(marked, *place.memory_node, bytes);
    place.buffer = bytes;
    place.flags = marked.flags;
    Point point = chase_point(place, bytes, Bytes{0}, PageSize::transparent, 0);
    const Bytes most = *place.memory_node->capacity / 2;
    points.push_back(bytes <= most
                         ? std::move(point)
                         : without(std::move(point.row),
                                   fmt::format("at most {}, half of node {}, can be chased",
                                               to_string(most), raw(place.memory_node->id))));
  }
}

std::vector<Point> list_points(const Scope& scope) {
  const Machine& machine = scope.machine;
  std::vector<Point> points;
  for (const Node& cpu_node : machine.nodes) {
    const CpuSet cpus = usable_cpus(&cpu_node);
    if (cpus.empty() || !cpu_node.byte_addressable()) continue;
    Row marked;
    const unsigned observer = observer_of(machine, cpus);
    const Bytes wanted = idle_cycle_bytes(marked, machine, observer);
    for (const Node& memory_node : machine.nodes) {
      if (!has_memory(memory_node)) continue;
      const bool local = &memory_node == &cpu_node;
      Row own = marked;
      const Bytes buffer = fit(own, memory_node, wanted);
      add_place(points, {&cpu_node, &memory_node, observer, buffer, own.flags}, local);
      add_larger(points, {&cpu_node, &memory_node, observer, wanted, marked.flags},
                 scope.numbers("bytes"));
    }
  }
  return points;
}

}  // namespace

const Experiment kExperiment{
    kName,       "idle load-to-use latency by node, window, page and working-set size",
    kParameters, {},
    list_points, 4,
    true};

}  // namespace headrace::experiment_latency
