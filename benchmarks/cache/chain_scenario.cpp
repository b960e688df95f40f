// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/chain_scenario.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "benchmarks/cache/draws.h"
#include "benchmarks/cache/stores/source.h"
#include "benchmarks/cache/timing.h"
#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/cache.h"
#include "headrace/histogram.h"
#include "headrace/mover.h"
#include "headrace/random.h"

namespace headrace::cache_bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kExtentBytes = 16 << 10;
constexpr std::uint64_t kExtentCount = 16'384;
constexpr Bytes kFirstBudget = 16_MiB;
constexpr std::uint64_t kFurther = 3;  // times the budget
constexpr std::uint64_t kDrawnExtents = 1 << 19;

struct Memories {
  NodeId first{};
  NodeId next{};
  bool twice = false;  // the host has one node
};

// Adds a node to a machine with one.
Result<Memories> memories_of(Machine& machine) {
  std::vector<NodeId> nodes;
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable()) nodes.push_back(node.id);
  }
  if (nodes.empty()) {
    return fail(ErrorCode::absent, "no memory node; headrace topo lists the nodes");
  }
  if (nodes.size() > 1) return Memories{nodes[0], nodes[1], false};
  Node again = *machine.find(nodes[0]);
  again.id = NodeId{raw(nodes[0]) + 1};
  again.name = "the same again";
  again.cpus.clear();
  machine.nodes.insert(machine.nodes.begin() + 1, again);
  return Memories{nodes[0], again.id, true};
}

struct Setup {
  Machine machine;
  Memories memories;
  Backends backends;
  std::unique_ptr<Mover> mover;
  std::unique_ptr<Cache> cache;
};

Result<std::unique_ptr<Setup>> make_setup(const Options& options, const Machine& found) {
  auto setup = std::make_unique<Setup>();
  setup->machine = found;
  HEADRACE_TRY(setup->memories, memories_of(setup->machine));
  HEADRACE_TRY(setup->backends, Backends::open(found));
  setup->mover = std::make_unique<Mover>(setup->machine, setup->backends,
                                         MoverOptions{.route = place::one, .poller = true});
  const Memories& on = setup->memories;
  const Bytes budget = options.budget.value_or(kFirstBudget);
  const bool further = options.implementation == "further";
  CacheOptions made{.budgets = {{further ? on.next : on.first, budget * (further ? kFurther : 1)}}};
  if (options.implementation == "chain") made.chain = {{on.next, budget * kFurther}};
  made.placement = place::always(made.budgets[0].first);
  made.shards = 1;
  made.allocate = [&machine = setup->machine, on](
                      NodeId node, Bytes bytes) -> Result<std::shared_ptr<const Object>> {
    HEADRACE_TRY(std::shared_ptr<const Object> slab,
                 allocate(machine, bytes, Placement::on(on.twice ? on.first : node)));
    return slab;
  };
  HEADRACE_TRY(setup->cache, Cache::create(*setup->mover, std::move(made)));
  return setup;
}

struct LookupTimes {
  Histogram hits;
  Histogram misses;
};

Tally look_up_in(Cache& cache, const Source& source, const Draws& draws, std::uint64_t seed,
                 const Until& until, LookupTimes& times) {
  using Clock = std::chrono::steady_clock;
  Random random(seed);
  Tally tally;
  std::size_t next = random.below(draws.size());
  do {
    const std::uint32_t number = draws[next];
    if (++next == draws.size()) next = 0;
    const std::uint64_t within = random.below(kExtentBytes / 8) * 8;
    const Clock::time_point begin = Clock::now();
    const Block block = cache.access(source.extent(number));
    const bool hit = block.hit();
    const auto bytes = block.wait();
    tally.wrong += !bytes || !source.holds(number, within, bytes->data());
    const auto took = std::chrono::nanoseconds(Clock::now() - begin).count();
    (hit ? times.hits : times.misses).record(static_cast<std::uint64_t>(took));
  } while (!until.enough(++tally.operations));
  return tally;
}

}  // namespace

Result<Json> run_chain(const Options& options) {
  const auto names = {"first", "further", "chain"};
  if (std::ranges::find(names, options.implementation) == names.end()) {
    return fail(ErrorCode::absent, "no implementation '{}' of {}; give first, further or chain",
                options.implementation, kChain);
  }
  const std::uint64_t extents = options.extents.value_or(kExtentCount);
  const auto path = options.directory / "chain.bin";
  HEADRACE_TRY_STATUS(write_words(path, extents * kExtentBytes));
  DiscoverOptions where;
  where.storage = {options.directory};
  HEADRACE_TRY(const Machine machine, Machine::discover(where));
  HEADRACE_TRY(const Source source,
               Source::in_file(machine, path, std::vector(extents, kExtentBytes)));
  HEADRACE_TRY(const auto setup, make_setup(options, machine));
  Random random(options.seed);
  std::vector<Draws> draws;
  for (unsigned thread = 0; thread < options.threads; ++thread) {
    draws.push_back(zipf(random, options.seed, extents, 0.99, kDrawnExtents));
  }
  Timing timing;
  CacheStats before;
  LookupTimes all;
  for (std::uint64_t part = 0; part < 2; ++part) {  // the first fills the cache
    std::vector<LookupTimes> times(options.threads);
    before = setup->cache->stats();
    timing = run_threads(
        options.threads, {.seconds = options.seconds, .operations = options.operations},
        [&](unsigned thread, const Until& until) {
          return look_up_in(*setup->cache, source, draws[thread],
                            options.seed * 4096 + 64 * thread + part, until, times[thread]);
        });
    all = {};
    for (const LookupTimes& one : times) {
      all.hits.add(one.hits);
      all.misses.add(one.misses);
    }
  }
  const CacheStats stats = setup->cache->stats();
  const auto quantile = [](const Histogram& histogram, double q) {
    const auto found = histogram.quantile(q);
    return found ? Json(*found) : Json(nullptr);
  };
  return Json{
      {"implementation", options.implementation},
      {"scenario", kChain},
      {"one_node_twice", setup->memories.twice},
      {"threads", options.threads},
      {"operations", timing.tally.operations},
      {"operations_per_second", static_cast<double>(timing.tally.operations) / timing.seconds},
      {"reads", stats.misses - before.misses},
      {"promotions", stats.promotions - before.promotions},
      {"demotions", stats.demotions - before.demotions},
      {"hit_p50_ns", quantile(all.hits, 0.5)},
      {"hit_p99_ns", quantile(all.hits, 0.99)},
      {"miss_p50_ns", quantile(all.misses, 0.5)},
      {"direct", source.direct()},
      {"wrong", timing.tally.wrong}};
}

}  // namespace headrace::cache_bench
