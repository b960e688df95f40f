// SPDX-License-Identifier: Apache-2.0
#include "model/solver.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "model/model_testing.h"
#include "model/queue.h"

namespace headrace {
namespace {

constexpr double kLine = 64;

Flow reader(unsigned node, double threads, double lines, double latency_ns) {
  return {.name = "reader of " + std::to_string(node),
          .threads = threads,
          .initiator = NodeId{0},
          .accesses = {{.node = NodeId{node}, .latency_ns = latency_ns}},
          .in_flight_bytes = lines * kLine};
}

Solution solved(const Solver& solver, const std::vector<Flow>& flows) {
  auto solution = solver.solve_with_interval(flows);
  EXPECT_TRUE(solution.has_value()) << (solution ? "" : solution.error().message);
  return solution ? *std::move(solution) : Solution{};
}

TEST(SolverTest, OneFlowWithoutCeilings_FollowsLittlesLaw) {
  const Solver solver = solver_of(two_memories(), {});
  const std::vector flows{reader(0, 3, 12, 100)};
  const Solution solution = solved(solver, flows);
  EXPECT_DOUBLE_EQ(solution.flows[0].rate, 3 * 12 * kLine / 100 * 1e9);
  EXPECT_DOUBLE_EQ(solution.flows[0].latency_ns, 100);
  EXPECT_EQ(solver.text_of(solution.flows[0].limit, flows[0]), "core: lines in flight");
  EXPECT_DOUBLE_EQ(solution.flows[0].limit.elasticity, 1);
}

TEST(SolverTest, FullCeiling_IsSharedByLinesInFlight) {
  const Solver solver = solver_of(two_memories(), {{ceiling_to("DDR", {0}, 100e9)}});
  const std::vector flows{reader(0, 16, 20, 100), reader(0, 16, 20, 100), reader(0, 16, 10, 100)};
  const Solution solution = solved(solver, flows);
  EXPECT_DOUBLE_EQ(solution.flows[0].rate, solution.flows[1].rate);
  EXPECT_NEAR(solution.flows[0].rate / solution.flows[2].rate, 2, 1e-9);
  EXPECT_NEAR(solution.ceilings[0].load / 100e9, 1, 0.02);
  EXPECT_EQ(solver.text_of(solution.flows[0].limit, flows[0]), "DDR");
}

TEST(SolverTest, SmallDemandAtAFullCeiling_IsServedAtAHigherLatency) {
  const Solver solver = solver_of(two_memories(), {{ceiling_to("DDR", {0}, 100e9)}});
  Flow small = reader(0, 1, 10, 100);
  small.cap_bytes_per_second = 0.1e9;
  const std::vector flows{reader(0, 16, 20, 100), small};
  const Solution solution = solved(solver, flows);
  EXPECT_DOUBLE_EQ(solution.flows[1].rate, 0.1e9);
  EXPECT_DOUBLE_EQ(solution.flows[1].latency_ns, solution.flows[0].latency_ns);
  EXPECT_GT(solution.flows[1].latency_ns, 150);
  EXPECT_EQ(solver.text_of(solution.flows[1].limit, flows[1]), "core: compute");
}

TEST(SolverTest, OpenDemand_IsServedBeforeThreadsThatWait) {
  const Solver solver = solver_of(two_memories(), {{ceiling_to("DDR", {0}, 100e9)}});
  Flow open = reader(0, 1, 1, 100);
  open.in_flight_bytes.reset();
  open.cap_bytes_per_second = 60e9;
  const std::vector flows{reader(0, 64, 20, 100), open};
  const Solution solution = solved(solver, flows);
  EXPECT_DOUBLE_EQ(solution.flows[1].rate, 60e9);
  EXPECT_NEAR(solution.flows[0].rate, 40e9, 2.1e9);
  EXPECT_EQ(solver.text_of(solution.flows[1].limit, flows[1]), "demand");
}

TEST(SolverTest, OpenDemandBeyondACeiling_GetsTheCeiling) {
  const Solver solver = solver_of(two_memories(), {{ceiling_to("DDR", {0}, 100e9)}});
  Flow open = reader(0, 1, 1, 100);
  open.in_flight_bytes.reset();
  open.cap_bytes_per_second = 200e9;
  const std::vector flows{open};
  const Solution solution = solved(solver, flows);
  EXPECT_NEAR(solution.flows[0].rate, 100e9 * kMostUtilisation, 0.1e9);
  EXPECT_EQ(solver.text_of(solution.flows[0].limit, open), "DDR");
}

TEST(SolverTest, StoresReadAndWrite_NonTemporalOnesOnlyWrite) {
  const Solver solver =
      solver_of(two_memories(), {{ceiling_to("reads", {0}, 1e12, Counts::reads),
                                  ceiling_to("writes", {0}, 1e12, Counts::writes)}});
  for (const auto& [kind, reads, writes] : {std::tuple{AccessKind::read, 1.0, 0.0},
                                            {AccessKind::write, 0.0, 1.0},
                                            {AccessKind::store, 1.0, 1.0}}) {
    Flow flow = reader(0, 1, 10, 100);
    flow.accesses[0].kind = kind;
    const Solution solution = solved(solver, {flow});
    EXPECT_DOUBLE_EQ(solution.ceilings[0].load, reads * solution.flows[0].rate);
    EXPECT_DOUBLE_EQ(solution.ceilings[1].load, writes * solution.flows[0].rate);
  }
}

TEST(SolverTest, BandwidthFollowsTheShareOfWrites) {
  Ceiling hbm = ceiling_to("HBM", {1}, 0);
  hbm.bandwidth.points = {{0, 430e9}, {0.5, 571e9}};
  const Solver solver = solver_of(two_memories(), {{hbm}});
  Flow copy = reader(1, 64, 60, 138);
  copy.accesses.push_back({.node = NodeId{1}, .kind = AccessKind::write, .latency_ns = 138});
  const Solution solution = solved(solver, {copy});
  EXPECT_DOUBLE_EQ(solution.ceilings[0].write_share, 0.5);
  EXPECT_NEAR(solution.ceilings[0].load / 571e9, 1, 0.02);
  copy.accesses[1].bytes = 1.0 / 3;  // a quarter of the bytes: halfway
  EXPECT_NEAR(solved(solver, {copy}).ceilings[0].bandwidth, 500.5e9, 1);
}

// DRAMHiT, Xeon Max 9462, one socket, 64 threads that read: HBM 427, DDR 241, both 428 GB/s. A
// model without the fabric adds: 668.
TEST(SolverTest, TwoMemoriesBehindOneFabric_DoNotAdd) {
  MachineModel model;
  model.ceilings = {ceiling_to("DDR", {0}, 241e9), ceiling_to("HBM", {1}, 840e9),
                    ceiling_to("mesh, reads", {0, 1}, 430e9, Counts::reads)};
  const Solver solver = solver_of(two_memories(), model);
  for (const auto& [ddr, hbm, total] :
       {std::tuple{64.0, 0.0, 241e9}, {0.0, 64.0, 427e9}, {32.0, 32.0, 428e9}}) {
    std::vector<Flow> flows;
    if (ddr > 0) flows.push_back(reader(0, ddr, 32, 111));
    if (hbm > 0) flows.push_back(reader(1, hbm, 32, 138));
    const Solution solution = solved(solver, flows);
    double sum = 0;
    for (const FlowResult& each : solution.flows) sum += each.rate;
    EXPECT_NEAR(sum / total, 1, 0.03) << ddr << " " << hbm;
    EXPECT_EQ(solver.text_of(solution.flows.back().limit, flows.back()),
              hbm > 0 ? "mesh, reads" : "DDR");
  }
}

// EPYC 9354P: 50 GB/s per CCD bind before the controllers, so that a thread on each of two CCDs
// gets more than two threads of one.
TEST(SolverTest, ClustersOfCpus_AreTakenApart) {
  MachineModel model;
  for (const CpuSet& cpus : {CpuSet{0, 1, 2, 3}, CpuSet{4, 5, 6, 7}}) {
    Ceiling ccd{.name = "CCD", .kind = CeilingKind::cluster, .bandwidth = Curve{{{0, 50e9}}}};
    ccd.paths = {{.cpus = cpus}};
    model.ceilings.push_back(ccd);
  }
  const Solver solver = solver_of(two_memories(), model);
  EXPECT_EQ(solver.cpu_group(1), solver.cpu_group(3));
  EXPECT_NE(solver.cpu_group(3), solver.cpu_group(4));
  Flow flow = reader(0, 4, 100, 100);
  flow.cpus = {0, 1};
  EXPECT_NEAR(solved(solver, {flow}).flows[0].rate, 50e9, 1e9);
  flow.cpus = {0, 4};
  EXPECT_NEAR(solved(solver, {flow}).flows[0].rate, 100e9, 2e9);
  flow.cpus = {};
  EXPECT_NEAR(solved(solver, {flow}).flows[0].rate, 100e9, 2e9);
}

TEST(SolverTest, EnginesAndRequests) {
  Machine machine = two_memories();
  machine.nodes.push_back(test_node(1000, NodeKind::storage));
  machine.engines = {
      {.id = EngineId{0}, .kind = EngineKind::ssd, .name = "vda", .home = NodeId{1000}}};
  Ceiling device = ceiling_to("vda", {1000}, 7e9);
  device.kind = CeilingKind::device;
  device.request_bytes = 7e9 / 1e6;  // a million requests a second
  Ceiling engine{.name = "queue", .kind = CeilingKind::engine, .bandwidth = Curve{{{0, 100e9}}}};
  engine.paths = {{.engines = {EngineId{0}}}};
  const Solver solver = solver_of(machine, {{device, engine}});
  Flow flow{.name = "reads of 4 KiB", .engine = EngineId{0}};
  flow.accesses = {{.node = NodeId{1000}, .latency_ns = 80e3, .request_bytes = 4096},
                   {.node = NodeId{0}, .kind = AccessKind::write, .latency_ns = 100}};
  flow.in_flight_bytes = 4096 * 4096;
  const Solution solution = solved(solver, {flow});
  EXPECT_NEAR(solution.flows[0].rate, 4096 / (4096 / 7e9 + 1e-6), 0.1e9);
  EXPECT_DOUBLE_EQ(solution.ceilings[1].load, 2 * solution.flows[0].rate);
  EXPECT_EQ(solver.text_of({.kind = Limit::Kind::cap}, flow), "engine: peak");
}

TEST(SolverTest, SideCache_MissesReadMemoryAndFillTheCache) {
  Machine machine = two_memories();
  machine.nodes[0].side_cache = MemorySideCache{.size = 64_GiB};
  Ceiling memory = ceiling_to("DDR", {0}, 241e9);
  Ceiling cache = ceiling_to("HBM cache", {0}, 840e9);
  cache.side_cache = true;
  Ceiling mesh = ceiling_to("mesh", {0}, 430e9);
  mesh.kind = CeilingKind::fabric;
  MachineModel model{.ceilings = {memory, cache, mesh}};
  model.latencies = {{.to = {NodeId{0}}, .side_cache = true, .read_ns = 140},
                     {.to = {NodeId{0}}, .read_ns = 110}};
  const Solver solver = solver_of(machine, model);
  Flow flow = reader(0, 1, 10, 100);
  flow.accesses[0].latency_ns.reset();
  flow.accesses[0].side_cache_hits = Estimate{.value = 0.75, .low = 0.5, .high = 1};
  flow.accesses[0].side_cache_dirty = 0.4;
  const Solution solution = solved(solver, {flow});
  const FlowResult& result = solution.flows[0];
  EXPECT_NEAR(result.rate, 640 / (140 + 0.25 * 110) * 1e9, 0.03e9);
  EXPECT_DOUBLE_EQ(solution.ceilings[0].load, (0.25 + 0.25 * 0.4) * result.rate);
  EXPECT_DOUBLE_EQ(solution.ceilings[1].load, 1.25 * result.rate);
  EXPECT_DOUBLE_EQ(solution.ceilings[2].load, result.rate);
  EXPECT_LT(result.rate_low, result.rate * 0.95);
  EXPECT_GT(result.rate_high, result.rate * 1.05);
}

TEST(SolverTest, IntervalSpansCeilingsAndLinesInFlight) {
  Ceiling ceiling = ceiling_to("DDR", {0}, 100e9);
  ceiling.uncertainty = 0.1;
  const Solver solver = solver_of(two_memories(), {{ceiling}});
  const FlowResult full = solved(solver, {reader(0, 64, 40, 100)}).flows[0];
  EXPECT_NEAR(full.rate_low / full.rate, 0.9, 0.01);
  EXPECT_NEAR(full.rate_high / full.rate, 1.1, 0.01);
  Flow alone = reader(0, 1, 1, 100);
  alone.in_flight_uncertainty = 0.2;
  const FlowResult slow = solved(solver, {alone}).flows[0];
  EXPECT_NEAR(slow.rate_low / slow.rate, 0.8, 0.01);
  EXPECT_NEAR(slow.rate_high / slow.rate, 1.2, 0.01);
}

// One constant at a time is uncertain; reads of the cache wait for its latency, too.
TEST(SolverTest, Interval_SpansLatenciesHitsAndQueues) {
  Machine machine = two_memories();
  machine.nodes[0].side_cache = MemorySideCache{.size = 64_GiB};
  MachineModel model{.latencies = {
                         {.to = {NodeId{0}}, .side_cache = true, .read_ns = 100},
                         {.to = {NodeId{0}}, .read_ns = 100},
                         {.to = {NodeId{1}}, .read_ns = 100, .uncertainty = 0.2},
                     }};
  const Solver solver = solver_of(machine, model);
  Flow flow = reader(1, 1, 10, 100);
  flow.accesses[0].latency_ns.reset();
  const FlowResult latency = solved(solver, {flow}).flows[0];
  EXPECT_NEAR(latency.rate_low / latency.rate, 1 / 1.2, 1e-6);
  EXPECT_NEAR(latency.rate_high / latency.rate, 1 / 0.8, 1e-6);
  flow.accesses[0].node = NodeId{0};
  flow.accesses[0].side_cache_hits = Estimate{.value = 0.5, .low = 0, .high = 1};
  const FlowResult hits = solved(solver, {flow}).flows[0];
  EXPECT_NEAR(hits.rate_low / hits.rate, 1.5 / 2, 1e-6);
  EXPECT_NEAR(hits.rate_high / hits.rate, 1.5, 1e-6);
  const Solver queued = solver_of(two_memories(), {{ceiling_to("DDR", {0}, 100e9)}});
  const FlowResult half = solved(queued, {reader(0, 8, 10, 100)}).flows[0];
  EXPECT_LT(half.rate_low, 0.97 * half.rate);
  EXPECT_GT(half.rate_high, 1.02 * half.rate);
}

TEST(SolverTest, EqualCeilings_NameTheFirst) {
  const MachineModel model{
      .ceilings = {ceiling_to("link", {0}, 100e9), ceiling_to("DDR", {0}, 100e9)}};
  const Solver solver = solver_of(two_memories(), model);
  const std::vector flows{reader(0, 64, 20, 100)};
  const Solution solution = solved(solver, flows);
  EXPECT_EQ(solver.text_of(solution.flows[0].limit, flows[0]), "link");
  EXPECT_DOUBLE_EQ(solution.ceilings[0].load, solution.ceilings[1].load);
}

TEST(SolverTest, PreparedFlows_AreSolvedForAnyThreads) {
  const MachineModel model{
      .ceilings = {ceiling_to("DDR", {0}, 100e9), ceiling_to("HBM", {1}, 300e9)}};
  const Solver solver = solver_of(two_memories(), model);
  std::vector<Flow> flows = {reader(0, 1, 40, 100), reader(0, 1, 10, 100), reader(1, 1, 40, 130)};
  FlowSet prepared = *solver.prepare(flows);
  for (const std::vector<double>& threads :
       {std::vector<double>{1, 1, 1}, {64, 1, 0}, {0, 0, 64}, {2, 60, 1}, {1, 1, 1}}) {
    ASSERT_TRUE(prepared.solve(threads).has_value());
    std::vector<Flow> present;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      flows[i].threads = threads[i];
      if (threads[i] > 0) present.push_back(flows[i]);
    }
    const Solution expected = solved(solver, present);
    std::size_t next = 0;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (threads[i] == 0) {
        EXPECT_EQ(prepared.rate(i), 0);
        continue;
      }
      const FlowResult& flow = expected.flows[next++];
      EXPECT_NEAR(prepared.rate(i) / flow.rate, 1, 1e-7);
      EXPECT_EQ(prepared.limit(i).kind, flow.limit.kind);
      EXPECT_NEAR(prepared.limit(i).elasticity, flow.limit.elasticity, 1e-5);
    }
    for (std::size_t c = 0; c < 2; ++c) {
      EXPECT_NEAR(prepared.ceiling(c).load, expected.ceilings[c].load, 1e3);
    }
  }
}

TEST(SolverTest, BadInput_IsOneLineWithTheFlowsName) {
  const Solver solver = solver_of(two_memories(), {});
  const auto error = [&](auto change) {
    Flow flow = reader(0, 1, 1, 100);
    flow.name = "f";
    change(flow);
    const auto solution = solver.solve(std::vector{flow});
    EXPECT_FALSE(solution.has_value());
    return solution ? std::string() : solution.error().message;
  };
  EXPECT_EQ(error([](Flow& f) { f.threads = 0; }),
            "flow 'f': the number of threads is 0; it must be above 0");
  EXPECT_EQ(error([](Flow& f) { f.threads = std::numeric_limits<double>::quiet_NaN(); }),
            "flow 'f': the number of threads is nan; it must be above 0");
  EXPECT_EQ(error([](Flow& f) { f.initiator = NodeId{7}; }), "flow 'f': no node 7");
  EXPECT_EQ(error([](Flow& f) { f.initiator = NodeId{1}; }),
            "flow 'f': node 1 has no CPUs; threads start from a node with CPUs");
  EXPECT_EQ(error([](Flow& f) { f.cpus = {9}; }), "flow 'f': CPU 9 is not one of its initiator");
  EXPECT_EQ(error([](Flow& f) { f.engine = EngineId{3}; }), "flow 'f': no engine 3");
  EXPECT_EQ(error([](Flow& f) { f.accesses.clear(); }), "flow 'f': has no accesses");
  EXPECT_EQ(error([](Flow& f) { f.accesses[0].node = NodeId{9}; }), "flow 'f': no node 9");
  EXPECT_EQ(error([](Flow& f) { f.accesses[0].bytes = -1; }),
            "flow 'f': the bytes of an access is -1; it must be above 0");
  EXPECT_EQ(error([](Flow& f) { f.accesses[0].latency_ns = 0; }),
            "flow 'f': the latency of an access is 0; it must be above 0");
  EXPECT_EQ(error([](Flow& f) { f.accesses[0].side_cache_hits = Estimate::exactly(2); }),
            "flow 'f': the share of hits is 2; it must be from 0 to 1");
  EXPECT_EQ(error([](Flow& f) { f.in_flight_bytes.reset(); }),
            "flow 'f': has neither bytes in flight nor a cap");
  EXPECT_EQ(error([](Flow& f) { f.cap_bytes_per_second = 0; }),
            "flow 'f': the cap is 0; it must be above 0");
  const auto none = Solver::create(two_memories(), {{ceiling_to("c", {0}, 0)}});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "ceiling 'c': its bandwidth must be above 0");
}

}  // namespace
}  // namespace headrace
