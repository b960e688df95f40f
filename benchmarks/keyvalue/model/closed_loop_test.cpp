// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/closed_loop.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::kv_bench {
namespace {

// Queues in front of two memories: 100 ns and 60 GB/s, 250 ns and 40 GB/s.
Tier queue_of(unsigned node, double idle_ns, double best) {
  std::vector<LoadedPoint> points;
  for (int i = 1; i <= 100; ++i) {
    const double used = 0.98 * i / 100;
    points.push_back({used * best, idle_ns / (1 - used)});
  }
  return {NodeId{node}, *LoadedCurve::of(std::move(points))};
}
const std::vector<Tier> kTiers = {queue_of(0, 100, 60e9), queue_of(1, 250, 40e9)};

constexpr Server kServer{.threads = 1, .cpu_ns = 5000, .dependent_lines = 50, .ssd_ns = 20'000};

TEST(ClosedLoop, AnIdleOperationIsTheSumOfItsParts) {
  const LinesPerOperation lines{.awaited = 50, .bus = 50, .mix = "read"};
  const double idle = kTiers[0].curve.idle_ns(), slow = kTiers[1].curve.idle_ns();
  EXPECT_NEAR(serve(kTiers, kServer, lines, {}).ops_per_second, 1e9 / (5000 + 50 * idle), 10);
  EXPECT_NEAR(serve(kTiers, kServer, lines, {.slow = 0.5}).ops_per_second,
              1e9 / (5000 + 25 * (idle + slow)), 10);
  EXPECT_NEAR(serve(kTiers, kServer, lines, {.ssd = 0.2}).ops_per_second,
              1e9 / (5000 + 50 * idle + 0.2 * 20'000), 10);
}

TEST(ClosedLoop, EveryThreadHasAnOperationAtAllTimes) {
  const auto lines = lines_of(*find_workload("A"), kServer, 1024);
  for (const unsigned threads : {1U, 50U, 200U, 5000U}) {
    Server server = kServer;
    server.threads = threads;
    for (const Shares& shares : {Shares{}, {.slow = 0.25}, {.slow = 0.75}, {.ssd = 0.4}}) {
      const Served served = serve(kTiers, server, lines, shares);
      // By Little's law the mean time of an operation is threads divided by operations per second.
      const double mean = (1 - shares.slow - shares.ssd) * served.fast_ns +
                          shares.slow * served.slow_ns + shares.ssd * served.ssd_ns;
      EXPECT_NEAR(mean * served.ops_per_second / 1e9 / threads, 1, 1e-6) << threads;
      EXPECT_LE(served.ops_per_second * lines.bus * kLineBytes * (1 - shares.slow), 59e9);
      EXPECT_LE(served.ops_per_second * lines.bus * kLineBytes * shares.slow, 39.3e9);
    }
  }
}

TEST(ClosedLoop, MoreThreadsNeverServeLess) {
  const auto lines = lines_of(*find_workload("C"), kServer, 4096);
  double before = 0;
  for (unsigned threads = 1; threads < 2000; threads *= 2) {
    Server server = kServer;
    server.threads = threads;
    const double now = serve(kTiers, server, lines, {.slow = 0.25}).ops_per_second;
    EXPECT_GE(now, before * (1 - 1e-9));
    before = now;
  }
}

TEST(ClosedLoop, LinesAreThoseOfTheWorkload) {
  const auto reads = lines_of(*find_workload("C"), kServer, 1024);
  EXPECT_EQ(reads.awaited, 51);
  EXPECT_EQ(reads.bus, 66);
  EXPECT_EQ(reads.mix, "read");
  const auto updates = lines_of(*find_workload("A"), kServer, 1024);
  EXPECT_EQ(updates.bus, 50 + 8 + 2 * 8);
  EXPECT_EQ(updates.mix, "1000:138");  // 58 lines loaded, 8 stored
}

}  // namespace
}  // namespace headrace::kv_bench
