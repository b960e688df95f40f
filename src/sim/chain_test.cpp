// SPDX-License-Identifier: Apache-2.0
// A chain of memories beside each of them alone, on a described machine in virtual time
// (docs/design/cache/chain.md has the printed figures).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "headrace/cache.h"
#include "headrace/random.h"
#include "sim/sim.h"
#include "sim/sim_testing.h"

namespace headrace::sim {
namespace {

constexpr NodeId kSource{2};
constexpr Bytes kBlock = 256_KiB;
constexpr std::uint64_t kBlocks = 1024;  // of the source
constexpr std::size_t kAccesses = 4000;

// The test's machine, and a source that its DSA device reads at 3 GB/s after 80 us, like an SSD.
Machine with_source() {
  Machine machine = test_machine();
  machine.nodes.push_back(
      {.id = kSource, .kind = NodeKind::cxl, .name = "node 2", .capacity = 1_GiB});
  const auto rate = [&](NodeId from, NodeId to, double bandwidth, Nanoseconds latency) {
    machine.copy_rates.push_back({.engine = kDsa,
                                  .from = from,
                                  .to = to,
                                  .latency = latency,
                                  .bandwidth = BytesPerSecond{bandwidth},
                                  .source = "test"});
  };
  rate(kFast, kSlow, 10e9, std::chrono::microseconds{1});
  rate(kSource, kSlow, 3e9, std::chrono::microseconds{80});
  rate(kSource, kFast, 3e9, std::chrono::microseconds{80});
  return machine;
}

// Ranks drawn by Zipf's law (exponent 1), scattered over the source.
std::vector<std::uint64_t> trace() {
  Random random(1);
  std::vector<std::uint64_t> blocks;
  for (std::size_t i = 0; i < kAccesses; ++i) {
    const double u = static_cast<double>(random.below(1 << 20)) / (1 << 20);
    const auto rank = static_cast<std::uint64_t>(std::pow(double{kBlocks}, u)) - 1;
    blocks.push_back(rank * 389 % kBlocks);
  }
  return blocks;
}

struct Replayed {
  CacheStats stats;
  Nanoseconds time{0};
};

Replayed replay(const CacheOptions& options) {
  Replayed outcome;
  test_on_host(
      [&](Host& host) {
        CacheOnHost rig(host, options, kSource, kBlock * kBlocks);
        auto& [backends, mover, source, cache] = rig;
        const std::size_t scan = *host.add_work({.name = "scan", .lines_in_flight = 48});
        for (const std::uint64_t number : trace()) {
          const Block block = cache->access({&source->object(), number * kBlock.value, kBlock},
                                            {.initiator = kSlow});
          const auto bytes = block.wait();
          ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
          ASSERT_TRUE(host.compute(kSlow, *bytes, scan).has_value());
        }
        outcome = {cache->stats(), host.turns().now()};
      },
      with_source());
  return outcome;
}

TEST(Chain, OfTwoMemories_ReadsTheSourceLess_AndIsFasterThanEachAlone) {
  const Replayed fast = replay({.budgets = {{kFast, 16_MiB}}});
  const Replayed slow = replay({.budgets = {{kSlow, 48_MiB}}});
  const Replayed chain = replay({.budgets = {{kFast, 16_MiB}}, .chain = {{kSlow, 48_MiB}}});
  const auto print = [](const char* name, const Replayed& one) {
    fmt::print("{}: {} blocks read from the source, {} promoted, {} demoted, {:.1f} ms\n", name,
               one.stats.misses, one.stats.promotions, one.stats.demotions,
               seconds(one.time) * 1000);
  };
  print("HBM of 16 MiB alone", fast);
  print("DDR of 48 MiB alone", slow);
  print("HBM above DDR", chain);
  EXPECT_EQ(chain.stats.refusals, 0U);
  EXPECT_LT(chain.stats.misses, slow.stats.misses);
  EXPECT_LT(slow.stats.misses, fast.stats.misses);
  EXPECT_LT(chain.time, slow.time);
  EXPECT_LT(chain.time, fast.time);
}

}  // namespace
}  // namespace headrace::sim
