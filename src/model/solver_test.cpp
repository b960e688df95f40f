// SPDX-License-Identifier: Apache-2.0
#include "model/solver.h"

#include <gtest/gtest.h>

#include <cmath>

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
  auto solution = solver.solve(flows);
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

// DRAMHiT, Xeon Max 9462, one socket, 64 threads that read: HBM 427, DDR 241, both 428 GB/s.
TEST(SolverTest, TwoMemoriesBehindOneFabric_DoNotAdd) {
  MachineModel model;
  model.ceilings = {ceiling_to("DDR", {0}, 241e9), ceiling_to("HBM", {1}, 840e9),
                    ceiling_to("mesh, reads", {0, 1}, 428e9, Counts::reads)};
  const Solver solver = solver_of(two_memories(), model);
  for (const auto& [ddr, hbm, total] :
       {std::tuple{64.0, 0.0, 241e9}, {0.0, 64.0, 428e9}, {32.0, 32.0, 428e9}}) {
    std::vector<Flow> flows;
    if (ddr > 0) flows.push_back(reader(0, ddr, 32, 111));
    if (hbm > 0) flows.push_back(reader(1, hbm, 32, 138));
    const Solution solution = solved(solver, flows);
    double sum = 0;
    for (const FlowResult& each : solution.flows) {
      printf("%g %g: rate %.1f lat %.1f limit %s %.2f it %u\n", ddr, hbm, each.rate / 1e9,
             each.latency_ns, solver.text_of(each.limit, flows[0]).c_str(), each.limit.elasticity,
             solution.iterations);
      sum += each.rate;
    }
    EXPECT_NEAR(sum / total, 1, 0.03);
  }
}

}  // namespace
}  // namespace headrace
