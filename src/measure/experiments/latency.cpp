// SPDX-License-Identifier: Apache-2.0
// Idle load-to-use latency, by a pointer chase (chase.h says how and why).
//
// A chase through the whole buffer begins with none of it in a cache (drop_from_caches). Smaller
// working sets are found in the caches, as a program would find them.
//
// It answers three questions:
// - How far is each node? All nodes with CPUs x all memory nodes, the whole buffer as one window,
//   with huge and base pages: the difference is the TLB.
// - What does the order of lines change? The window grows from one page to the whole buffer.
// - Where do the caches end? The size of the working set varies.
//
// A fourth measurement checks that buffers of other experiments exceed the caches. Lines that were
// just chased are chased once more, after a walk over a buffer of that size. The detail
// `after_walk` is the second time divided by the first, each of the fastest 4096 loads, since other
// work slows only some. It is 1 if the walk pushed the lines out, and much less on a virtual
// machine that shows a smaller cache than its host has.
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

// Per repetition: long compared with the clock and a stray interrupt, short compared with the drift
// of a shared machine.
constexpr Nanoseconds kChaseTime = std::chrono::milliseconds{10};
constexpr Bytes kLeastWalked = 16_MiB;  // as `bandwidth` gives one thread

// Loads each line, as an ordered walk does.
void walk_over(std::span<const std::byte> memory) {
  for (std::size_t at = 0; at < memory.size(); at += kLine) {
    (void)*reinterpret_cast<const volatile std::byte*>(memory.data() + at);
  }
}

class Chase final : public Probe {
 public:
  Chase(unsigned cpu, void* start) : cpu_(cpu), own_(start), at_(own_) {}
  // `walked`: memory to walk over between two chases of the same lines; empty: one chase.
  Chase(unsigned cpu, const IdleCycle& cycle, std::span<const std::byte> walked)
      : cpu_(cpu), at_(cycle.at), walked_(walked) {}

  Result<Sample> sample() override {
    Sample sample;
    const Ticks& ticks = Ticks::instance();
    const auto counter = [&] { return ticks.now(); };
    HEADRACE_TRY_STATUS(run_pinned({cpu_}, [&](std::size_t) {
      void* const first = chase(at_, kWarmUp);
      const CpuShare share;
      const TimedChase once = chase_for(first, ticks.ticks(kChaseTime), SIZE_MAX, counter);
      sample.value = ticks.nanoseconds(once.ticks) / static_cast<double>(once.loads);
      sample.cpu_share = share.now();
      if (!walked_.empty()) {
        walk_over(walked_);
        (void)chase(at_, kWarmUp);
        const TimedChase again = chase_for(first, ticks.ticks(kLongest), once.loads, counter);
        sample.details["after_walk"] =
            static_cast<double>(again.fastest) / static_cast<double>(once.fastest);
      }
      at_ = once.end;
    }));
    sample.words["observer"] = fmt::format("CPU {}", cpu_);
    return sample;
  }

 private:
  static constexpr std::size_t kWarmUp = 16384;
  static constexpr Nanoseconds kLongest = std::chrono::minutes{1};

  const unsigned cpu_;
  void* own_ = nullptr;
  void*& at_;
  const std::span<const std::byte> walked_;
};

struct Place {
  const Node* cpu_node;
  const Node* memory_node;
  unsigned cpu;
  Bytes buffer;
  Bytes walked = {};                    // 0: no second chase
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
  // The cycle through the whole buffer has a buffer of its own, and serves all CPUs.
  const bool whole = bytes == place.buffer && window.value == 0;
  const bool twice = whole && pages == PageSize::transparent && place.walked > Bytes{0};
  point.of_matrix = whole;
  // Linking a cycle costs about 40 ns per line.
  const Nanoseconds linking{static_cast<std::int64_t>(bytes.value * 40 / kLine)};
  const Nanoseconds touched = touching(place.buffer, 8);
  point.cost = 3 * kChaseTime + std::chrono::milliseconds{2} + (whole ? Nanoseconds{0} : linking);
  if (twice) point.cost += 3 * (kChaseTime + touching(place.walked, 8)) + touched;
  point.setup = whole ? idle_cycle_setup(bytes) : SharedSetup{.name = "chased", .cost = touched};
  point.prepare = [=](BufferPool& buffers, Random& random) -> Result<std::unique_ptr<Probe>> {
    if (whole) {
      std::span<const std::byte> walked;
      if (twice) {
        HEADRACE_TRY(walked, buffers.get(point.memory, 0, place.buffer));
        walked = walked.first(place.walked.value);
      }
      HEADRACE_TRY(const IdleCycle cycle,
                   idle_cycle(buffers, random, point.memory, bytes, place.cpu));
      return std::make_unique<Chase>(place.cpu, cycle, walked);
    }
    HEADRACE_TRY(const auto memory, buffers.get(point.memory, 0, place.buffer));
    void* start = nullptr;
    // Linked by the CPU that will chase: its caches then hold the part of a small working set that
    // it wrote last, as a program's would.
    HEADRACE_TRY_STATUS(run_pinned({place.cpu}, [&](std::size_t) {
      start = make_cycle(memory.first(bytes.value), window, random);
      if (bytes == place.buffer) (void)drop_from_caches(memory.first(bytes.value));
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

// A requested working set larger than the usual one: for memory behind a memory-side cache.
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
    const Bytes walked = past_caches(marked, machine, {observer}, kCachesPassed, kLeastWalked);
    for (const Node& memory_node : machine.nodes) {
      if (!has_memory(memory_node)) continue;
      const bool local = &memory_node == &cpu_node;
      Row own = marked;
      const Bytes buffer = fit(own, memory_node, wanted);
      const Bytes between = local ? std::min(walked, buffer) : Bytes{0};
      add_place(points, {&cpu_node, &memory_node, observer, buffer, between, own.flags}, local);
      add_larger(points, {&cpu_node, &memory_node, observer, wanted, Bytes{0}, marked.flags},
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
