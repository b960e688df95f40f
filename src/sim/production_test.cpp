// SPDX-License-Identifier: Apache-2.0
// Production code on a described machine in virtual time: Mover, Cache and plans.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <string>
#include <vector>

#include "core/thread.h"
#include "headrace/cache.h"
#include "headrace/mover.h"
#include "headrace/random.h"
#include "sim/sim.h"

namespace headrace::sim {
namespace {

struct Settings {
  unsigned groups = 8;    // tiles of the preset
  unsigned threads = 12;  // per group
  Bytes data = 256_MiB;   // per group
  Bytes block = 1_MiB;
  bool plan = true;
  std::uint64_t seed = 1;
};

struct Outcome {
  std::string trace;  // a line per use
  Nanoseconds time{0};
  CacheStats stats;
  std::uint64_t turns = 0;
  std::uint64_t solved = 0;
};

// The threads of a group take the blocks of its data in order, through a cache on its HBM.
void scan_group(Host& host, Mover& mover, const Settings& settings, unsigned group,
                Outcome& outcome) {
  const NodeId slow{group};
  const NodeId fast{8 + group};
  const auto data = *host.reserve(slow, settings.data);
  CacheOptions options{.budgets = {{fast, settings.data / 4}}, .placement = place::always(fast)};
  options.shards = 4;
  options.allocate = [&](NodeId node, Bytes bytes) { return host.reserve_object(node, bytes); };
  auto made = Cache::create(mover, options);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  const auto cache = *std::move(made);
  std::vector<Extent> extents;
  for (std::uint64_t at = 0; at < settings.data.value; at += settings.block.value) {
    extents.push_back({&data->object(), at, settings.block});
  }
  const std::size_t work =
      *host.add_work({.name = "scan", .bytes_per_second = 2.4e9, .lines_in_flight = 48});
  Prefetch plan;
  if (settings.plan) plan = cache->prefetch(extents, {.initiator = slow});
  std::atomic<std::size_t> next{0};
  const auto consume = [&](unsigned number) {
    Random random(settings.seed * 1000 + group * 100 + number);
    for (std::size_t i = next++; i < extents.size(); i = next++) {
      AccessOptions access{.initiator = slow};
      if (settings.plan) access.plan = &plan;
      const Block block = cache->access(extents[i], access);
      const auto bytes = block.wait();
      ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
      const double times = 1 + static_cast<double>(random.below(100)) / 1000;
      ASSERT_TRUE(host.compute(slow, *bytes, work, times).has_value());
      outcome.trace += fmt::format("{} {}.{} {} {}\n", host.turns().now().count(), group, number, i,
                                   block.hit());
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < settings.threads; ++i) {
    auto thread = start_thread("scan", [&, i] { consume(i); });
    ASSERT_TRUE(thread.has_value());
    threads.push_back(*std::move(thread));
  }
  for (std::thread& thread : threads) join(thread);
  plan.cancel();
  const CacheStats stats = cache->stats();
  outcome.stats.hits += stats.hits;
  outcome.stats.late += stats.late;
  outcome.stats.misses += stats.misses;
  outcome.stats.prefetched += stats.prefetched;
}

Outcome scan(const Settings& settings) {
  Outcome outcome;
  const Machine machine = *Machine::load("xeon-max");
  const Status ended = run({.seed = settings.seed}, [&](Scheduler& turns) {
    const auto host = *Host::create(turns, machine);
    const EngineKind dsa = EngineKind::dsa;
    const auto backends = open_kinds(*host, {&dsa, 1});
    ASSERT_TRUE(backends.has_value()) << backends.error().message;
    Mover mover(machine, *backends, {.route = place::one, .clock = &turns, .waiting = &turns});
    std::vector<std::thread> groups;
    for (unsigned group = 0; group < settings.groups; ++group) {
      auto thread =
          start_thread("group", [&, group] { scan_group(*host, mover, settings, group, outcome); });
      ASSERT_TRUE(thread.has_value());
      groups.push_back(*std::move(thread));
    }
    for (std::thread& thread : groups) join(thread);
    outcome.time = turns.now();
    outcome.turns = turns.switches();
    outcome.solved = host->flows().solved();
  });
  EXPECT_TRUE(ended.has_value()) << (ended ? "" : ended.error().message);
  return outcome;
}

TEST(Production, SameSeed_GivesTheSameTrace) {
  const Outcome first = scan({.data = 64_MiB});
  const Outcome second = scan({.data = 64_MiB});
  EXPECT_FALSE(first.trace.empty());
  EXPECT_EQ(first.trace, second.trace);
  EXPECT_NE(first.trace, scan({.data = 64_MiB, .seed = 2}).trace);
}

// The promise of a plan, which a defect planted in src/cache breaks (tools/mutations/sim.toml).
TEST(Production, Plan_HidesCopiesBehindComputation) {
  const std::clock_t begin = std::clock();
  const Outcome ahead = scan({.data = 512_MiB});
  // Printed, not judged. The goal: at most a minute of two cores.
  const double cpu = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  fmt::print(
      "96 threads: {:.1f} s of CPU time per simulated second ({:.3f} s in {:.3f} s; {} turns, "
      "{} solutions)\n",
      cpu / seconds(ahead.time), cpu, seconds(ahead.time), ahead.turns, ahead.solved);
  const Outcome on_demand = scan({.data = 512_MiB, .plan = false});
  EXPECT_GT(ahead.stats.prefetched, 500U);
  EXPECT_EQ(on_demand.stats.prefetched, 0U);
  // Nearly all blocks are there when they are used; the first of each thread cannot be.
  EXPECT_GT(ahead.stats.hits * 20, 19 * (ahead.stats.hits + ahead.stats.late));
  EXPECT_LT(ahead.time * 10, on_demand.time * 9);
}

TEST(Production, HundredsOfThreads_RunOnOneMachine) {
  const Outcome outcome = scan({.threads = 48, .data = 128_MiB});
  EXPECT_EQ(std::ranges::count(outcome.trace, '\n'), 8 * 128);
}

}  // namespace
}  // namespace headrace::sim
