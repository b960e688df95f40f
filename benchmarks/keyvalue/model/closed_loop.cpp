// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/closed_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace headrace::kv_bench {
namespace {

// Loads to stores in whole numbers, as mixes are written.
std::string mix_of(double loads, double stores) {
  if (stores <= 0) return "read";
  const double scale = 1000 / std::max(loads, stores);
  return fmt::format("{}:{}", std::lround(loads * scale), std::lround(stores * scale));
}

}  // namespace

LinesPerOperation lines_of(const Workload& workload, const Server& server, double value_bytes) {
  const double value = value_bytes / kLineBytes;
  const double stores = (1 - workload.reads) * value;
  const double loads = server.dependent_lines + workload.reads * value;
  return {.awaited = server.dependent_lines + value / kLinesPerThread,
          .bus = loads + 2 * stores,  // a store reads its line first
          .mix = mix_of(loads, stores)};
}

Served serve(std::span<const Tier> tiers, const Server& server, const LinesPerOperation& lines,
             const Shares& shares) {
  const std::array share = {1 - shares.slow, shares.slow};
  const double own_ns = server.cpu_ns + shares.ssd * server.ssd_ns;
  const double threads = server.threads;
  const auto spread_at = [&](double ops) {
    return predict(tiers, share, {.demand = ops * lines.bus * kLineBytes});
  };
  // Whether threads and the memories' bandwidth suffice for `ops` operations per second.
  const auto can = [&](double ops) {
    const auto spread = spread_at(ops);
    return spread && spread->latency_ns &&
           ops * 1e-9 * (own_ns + lines.awaited * *spread->latency_ns) <= threads;
  };
  double low = 0, high = threads * 1e9 / (own_ns + lines.awaited * tiers[0].curve.idle_ns());
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (can(middle) ? low : high) = middle;
  }
  const Spread spread = *spread_at(low);
  std::array<double, 2> op_ns{}, used{};
  for (std::size_t i = 0; i < 2; ++i) {
    used[i] = spread.tier_bandwidth[i] / tiers[i].curve.best();
    op_ns[i] = server.cpu_ns + lines.awaited * tiers[i].curve.latency(spread.tier_bandwidth[i]);
  }
  // Waits beyond the curves happen at the memory that is saturated.
  const double mean = share[0] * op_ns[0] + share[1] * op_ns[1] + shares.ssd * server.ssd_ns;
  const double excess = std::max(0.0, threads * 1e9 / low - mean);
  const std::size_t full = used[1] > used[0] ? 1 : 0;
  op_ns[full] += excess / share[full];
  const double memory_ns = threads * 1e9 / low - own_ns;
  return {.ops_per_second = low,
          .fast_ns = op_ns[0],
          .slow_ns = op_ns[1],
          .ssd_ns = op_ns[0] + server.ssd_ns,
          .lines_in_flight = low * 1e-9 * lines.bus * memory_ns / lines.awaited,
          .fast_used = used[0]};
}

}  // namespace headrace::kv_bench
