// SPDX-License-Identifier: Apache-2.0
// Memory-level parallelism: the number of loads that one core has in flight, and the time per load
// then.
//
// One thread follows 1, 2, 4, ... chains through one cycle in turn (chase.h). Loads of one chain
// wait for each other; those of different chains do not. With one chain the time per load is the
// idle latency of the row of `latency` with window=all. With more chains it falls as long as the
// core can have more lines in flight. `speedup` is the ratio to one chain, which runs in every
// sample too; it is about the number of loads in flight. `bandwidth` is one core's rate on lines in
// random order.
//
// The chains divide a stretch of the cycle among them. The next sample takes the stretch after it,
// whatever its number of chains, so that no line is cached by an earlier point.
#include <algorithm>

#include "core/fail.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/idle_cycle.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/ticks.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_parallelism {

using namespace session;

namespace {

constexpr std::string_view kName = "parallelism";
constexpr Parameter kParameters[] = {
    {"cpu_node", ParameterKind::node},
    {"memory_node", ParameterKind::node},
    {"chains", ParameterKind::count},
};
constexpr std::string_view kDetails[] = {"speedup", "bandwidth"};

// A multiple of each number of chains.
constexpr std::size_t kUnit = 96;
static_assert(std::ranges::all_of(kChainCounts, [](auto chains) { return kUnit % chains == 0; }));
// Counted loads: about 5 ms with one chain. More chains are faster and do more loads.
constexpr std::size_t kLoads = 512 * kUnit;
constexpr std::size_t kMostTimesLoads = 8;
constexpr std::size_t kWarmUp = 96 * kUnit;
constexpr Nanoseconds kOneSample = std::chrono::milliseconds{15};

class Chains final : public Probe {
 public:
  Chains(unsigned cpu, std::size_t chains, const IdleCycle& chased)
      : cpu_(cpu), chains_(chains), chased_(chased) {}

  Result<Sample> sample() override {
    Sample sample;
    HEADRACE_TRY_STATUS(run_pinned({cpu_}, [&](std::size_t) {
      follow(1, kWarmUp);
      const CpuShare share;
      const double alone = follow(1, kLoads);
      const double together =
          chains_ == 1 ? alone : follow(chains_, kLoads * std::min(chains_, kMostTimesLoads));
      sample.value = together;
      sample.details = {{"speedup", alone / together}, {"bandwidth", kLine * 1e9 / together}};
      sample.cpu_share = share.now();
    }));
    return sample;
  }

 private:
  // Nanoseconds per load over `loads` loads, fewer on a small node.
  double follow(std::size_t chains, std::size_t loads) {
    const std::size_t lines = chased_.memory.size() / kLine;
    const std::size_t each = std::min(loads, lines / 4 / kUnit * kUnit) / chains;
    const std::size_t first = index_in_cycle(chased_.at);
    std::vector<void*> at(chains);
    for (std::size_t i = 0; i < chains; ++i) {
      at[i] = line_of_cycle(chased_.memory, (first + i * each) % lines);
    }
    const Ticks& ticks = Ticks::instance();
    const std::uint64_t begin = ticks.now();
    chase_together(at, each);
    const std::uint64_t end = ticks.now();
    chased_.at = at.back();
    return ticks.nanoseconds(end - begin) / static_cast<double>(each * chains);
  }

  const unsigned cpu_;
  const std::size_t chains_;
  const IdleCycle chased_;
};

// First the ends of the curve, then the steps between; near before far.
unsigned rank_of(std::size_t chains, bool near) {
  const bool telling = chains == 1 || chains == 8 || chains == 16;
  return (telling ? 1 : 2) + (near ? 0 : 2);
}

Point chains_point(const Node& cpu_node, const Node& memory_node, unsigned cpu, Bytes bytes,
                   std::size_t chains, const Row& marked) {
  Point point;
  point.row = make_row(kName, kParameters,
                       {id_of(&cpu_node), id_of(&memory_node), std::uint64_t{chains}}, "ns");
  point.row.flags = marked.flags;
  point.row.cpus = list_of_cpus({cpu});
  point.memory = {memory_node.id, PageSize::transparent};
  point.cost = 3 * kOneSample;
  point.setup = idle_cycle_setup(bytes);
  point.prepare = [key = point.memory, cpu, bytes, chains](
                      BufferPool& buffers, Random& random) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const IdleCycle chased, idle_cycle(buffers, random, key, bytes, cpu));
    return std::make_unique<Chains>(cpu, chains, chased);
  };
  return point;
}

std::vector<Point> list_points(const Scope& scope) {
  const Machine& machine = scope.machine;
  std::vector<Point> points;
  for (const Node* cpu_node : nodes_with_cpus(machine)) {
    const unsigned cpu = observer_of(machine, usable_cpus(cpu_node));
    for (const Node* memory_node : memory_nodes(machine)) {
      const bool near = is_near(machine, *cpu_node, *memory_node);
      Row marked;
      const Bytes bytes = fit(marked, *memory_node, idle_cycle_bytes(marked, machine, cpu));
      for (const std::size_t chains : kChainCounts) {
        points.push_back(chains_point(*cpu_node, *memory_node, cpu, bytes, chains, marked));
        points.back().rank = rank_of(chains, near);
      }
    }
  }
  return points;
}

}  // namespace

const Experiment kExperiment{kName,       "loads of one core under way at once: 1 to 32 chains",
                             kParameters, kDetails,
                             list_points, 1,
                             true};

}  // namespace headrace::experiment_parallelism
