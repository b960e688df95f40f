// SPDX-License-Identifier: Apache-2.0
// The time of one solution: 30 flows, each over a core cluster, a fabric, a controller and links.
#include <benchmark/benchmark.h>

#include <vector>

#include "model/model.h"

namespace headrace {
namespace {

Machine machine_of_ten_nodes() {
  Machine machine;
  for (unsigned id = 0; id < 10; ++id) {
    Node node{.id = NodeId{id}, .kind = NodeKind::dram};
    for (unsigned cpu = 0; cpu < 12; ++cpu) node.cpus.push_back(id * 12 + cpu);
    machine.nodes.push_back(node);
  }
  return machine;
}

MachineModel forty_ceilings() {
  MachineModel model;
  for (unsigned id = 0; id < 10; ++id) {
    for (const bool initiator : {true, false}) {
      for (const Counts counts : {Counts::reads, Counts::writes}) {
        Ceiling ceiling{.bandwidth = Curve{{{0, (initiator ? 90e9 : 60e9) + id * 1e9}}}};
        ceiling.paths.emplace_back().counts = counts;
        (initiator ? ceiling.paths[0].from : ceiling.paths[0].to).push_back(NodeId{id});
        model.ceilings.push_back(ceiling);
      }
    }
  }
  return model;
}

std::vector<Flow> thirty_flows() {
  std::vector<Flow> flows;
  for (unsigned i = 0; i < 30; ++i) {
    Flow flow{.name = "f", .threads = 4, .initiator = NodeId{i % 10}, .in_flight_bytes = 2000.0};
    flow.accesses = {{.node = NodeId{i % 7}},
                     {.node = NodeId{(i * 3) % 10}, .kind = AccessKind::store, .bytes = 0.5}};
    flows.push_back(flow);
  }
  return flows;
}

void solve_thirty_flows(benchmark::State& state) {
  const Solver solver = *Solver::create(machine_of_ten_nodes(), forty_ceilings());
  const std::vector<Flow> flows = thirty_flows();
  unsigned iterations = 0;
  for (auto _ : state) {
    const auto solution = solver.solve(flows);
    iterations = solution->iterations;
  }
  state.counters["iterations"] = iterations;
}
BENCHMARK(solve_thirty_flows)->Unit(benchmark::kMicrosecond);

// One of the flows has another number of threads each time; limits are asked for too.
void solve_thirty_flows_again(benchmark::State& state) {
  const Solver solver = *Solver::create(machine_of_ten_nodes(), forty_ceilings());
  FlowSet flows = *solver.prepare(thirty_flows());
  std::vector<double> threads(30, 4);
  std::size_t next = 0;
  for (auto _ : state) {
    double& changed = threads[next++ % threads.size()];
    changed = changed == 4 ? 5 : 4;
    if (!flows.solve(threads)) state.SkipWithError("no solution");
    for (std::size_t i = 0; i < threads.size(); ++i) benchmark::DoNotOptimize(flows.limit(i));
  }
}
BENCHMARK(solve_thirty_flows_again)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace headrace
