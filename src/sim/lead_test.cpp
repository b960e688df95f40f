// SPDX-License-Identifier: Apache-2.0
// How many uses of a plan come before their copies, by the lead, on described sources in virtual
// time (docs/design/cache/plans.md has the printed figures).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "headrace/cache.h"
#include "sim/sim.h"
#include "sim/sim_testing.h"

namespace headrace::sim::lead {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr NodeId kSource{2};
constexpr Bytes kBlock = 256_KiB;
constexpr std::uint64_t kBlocks = 2048;
constexpr std::uint64_t kWarm = 512;  // uses that are not counted

struct Scenario {
  Nanoseconds latency;      // of the source
  std::uint64_t burst = 1;  // blocks used at once; then a pause of 1 ms for each
  std::uint64_t other = 0;  // blocks that other reads take at once, every 128 ms
};

struct Outcome {
  std::uint64_t late = 0;
  Bytes ahead;  // most bytes in the cache that are not used yet
};

Machine with_source(Nanoseconds latency) {
  Machine machine = test_machine();
  machine.nodes.push_back(
      {.id = kSource, .kind = NodeKind::cxl, .name = "node 2", .capacity = 1_GiB});
  machine.copy_rates.push_back({.engine = kDsa,
                                .from = kSource,
                                .to = kSlow,
                                .latency = latency,
                                .bandwidth = BytesPerSecond{2e9},
                                .source = "test"});
  return machine;
}

Outcome scan(const Scenario& scenario, Nanoseconds lead) {
  Outcome outcome;
  test_on_host(
      [&](Host& host) {
        CacheOnHost rig(host, {.budgets = {{kSlow, 256_MiB}}}, kSource, kBlock * kBlocks);
        auto& [backends, mover, source, cache] = rig;
        const auto scratch = *host.reserve(kSlow, kBlock * 128);
        const Strided all{.object = &source->object(),
                          .length = kBlock,
                          .stride = kBlock.value,
                          .count = kBlocks};
        const Prefetch plan = cache->prefetch(all, {.lead = lead});
        std::vector<Transfer> others;
        std::uint64_t late = 0;
        for (std::uint64_t i = 0; i < kBlocks; ++i) {
          if (i == kWarm) late = cache->stats().late;
          for (std::uint64_t k = 0; i % 128 == 0 && k < scenario.other; ++k) {
            others.push_back(mover.copy({&scratch->object(), k * kBlock.value, kBlock},
                                        {&source->object(), k * kBlock.value, kBlock}));
          }
          const Block block =
              cache->access({&source->object(), i * kBlock.value, kBlock}, {.plan = &plan});
          ASSERT_TRUE(block.wait().has_value());
          if (i >= kWarm) {
            const Prefetch::Progress progress = plan.progress();
            outcome.ahead = std::max(outcome.ahead, kBlock * (progress.started - progress.used));
          }
          if (i % scenario.burst == 0) host.turns().sleep(milliseconds{scenario.burst});
        }
        outcome.late = cache->stats().late - late;
      },
      with_source(scenario.latency));
  return outcome;
}

TEST(PlanLead, DefaultLead_HidesCopiesOfSlowSourcesAndBursts) {
  const std::pair<const char*, Scenario> scenarios[] = {
      {"SSD of 100 us", {.latency = microseconds{100}}},
      {"SSD of 100 us, bursts of 16", {.latency = microseconds{100}, .burst = 16}},
      {"source of 20 ms", {.latency = milliseconds{20}}},
      {"source of 20 ms, others", {.latency = milliseconds{20}, .other = 128}},
  };
  for (const auto& [name, scenario] : scenarios) {
    const Outcome usual = scan(scenario, PrefetchOptions{}.lead);
    const Outcome least = scan(scenario, milliseconds{1});
    fmt::print("{}: {} late, {} ahead; with a lead of 1 ms {} late, {} ahead\n", name, usual.late,
               to_string(usual.ahead), least.late, to_string(least.ahead));
    EXPECT_LE(usual.late, (kBlocks - kWarm) / 100) << name;
  }
}

}  // namespace
}  // namespace headrace::sim::lead
