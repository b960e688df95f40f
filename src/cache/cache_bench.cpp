// SPDX-License-Identifier: Apache-2.0
// Benchmarks of the cache without copies: hits, misses, evictions, refusals, plans, scans.
//
// The backend copies nothing and completes inside submit(), so a miss is only the work of the cache
// and the Mover. Run with --benchmark_filter=Miss for the cost of a miss.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "cache/structures/index.h"
#include "headrace/backend.h"
#include "headrace/cache.h"
#include "headrace/histogram.h"
#include "headrace/mover.h"
#include "headrace/random.h"

namespace headrace {
namespace {

constexpr NodeId kDram{0};
constexpr NodeId kHbm{8};
constexpr EngineId kCpuA{0};

// Node 0 and a node to copy from, which need not exist.
Machine two_nodes() {
  Machine machine;
  machine.nodes = {
      {.id = kDram, .kind = NodeKind::dram, .reason = "bench", .name = "to", .cpus = {0}},
      {.id = kHbm, .kind = NodeKind::hbm, .reason = "bench", .name = "from"}};
  machine.engines = {
      {.id = kCpuA, .kind = EngineKind::cpu, .name = "cpu", .home = kDram, .reason = "bench"}};
  return machine;
}

class NullBackend final : public Backend {
 public:
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) completion.complete(piece.tag, Status{});
    return pieces.size();
  }

 private:
  const Capabilities capabilities_{.name = "null",
                                   .engines = {kCpuA},
                                   .max_piece = 1_GiB,
                                   .max_in_flight = 1024,
                                   .inline_below = 1_GiB,
                                   .note = "copies nothing"};
};

constexpr std::uint64_t kBlock = 4096;

struct Bench {
  explicit Bench(Bytes budget, EvictionFactory eviction = s3_fifo, std::size_t bytes = 64 << 20)
      : memory(bytes), source(memory, kHbm) {
    backends.add(std::make_unique<NullBackend>());
    mover = std::make_unique<Mover>(machine, backends, MoverOptions{.route = place::one});
    cache = *Cache::create(*mover, {.budgets = {{kDram, budget}},
                                    .placement = place::always(kDram),
                                    .eviction = std::move(eviction),
                                    .reserve = true});
  }
  Extent block(std::uint64_t i) const {
    return {&source, i * kBlock % memory.size(), Bytes{kBlock}};
  }

  Machine machine = two_nodes();
  std::vector<std::byte> memory;
  MemoryRange source;
  Backends backends;
  std::unique_ptr<Mover> mover;
  std::unique_ptr<Cache> cache;
};

std::unique_ptr<Bench> shared_bench;

// Access and release of range(0) ready blocks. With 1, all threads use one hot block.
void Hit(benchmark::State& state) {
  if (state.thread_index() == 0) {
    shared_bench = std::make_unique<Bench>(64_MiB);
    for (int i = 0; i < state.range(0); ++i) {
      (void)shared_bench->cache->access(shared_bench->block(static_cast<std::uint64_t>(i)));
    }
  }
  const auto blocks = static_cast<std::uint64_t>(state.range(0));
  const std::uint64_t step = 4099 % blocks;
  auto i = static_cast<std::uint64_t>(state.thread_index()) * 977 % blocks;
  for (auto _ : state) {
    const Bench& bench = *shared_bench;  // made before the first thread is here
    benchmark::DoNotOptimize(bench.cache->access({&bench.source, i * kBlock, Bytes{kBlock}}));
    i += step;  // not the next block; a division would take as long as a hit
    if (i >= blocks) i -= blocks;
  }
  if (state.thread_index() == 0) shared_bench.reset();
}
BENCHMARK(Hit)->Arg(1)->Arg(10000)->Arg(16000)->Threads(1)->Threads(2)->UseRealTime();

// Like above for 16 extents in one call; the time is per call.
void HitBatch(benchmark::State& state) {
  shared_bench = nullptr;
  Bench bench(256_MiB, s3_fifo, 256 << 20);
  const auto blocks = static_cast<std::uint64_t>(state.range(0));
  for (std::uint64_t i = 0; i < blocks; ++i) (void)bench.cache->access(bench.block(i));
  std::vector<Extent> extents(16);
  std::vector<Block> found(16);
  std::uint64_t i = 0;
  const bool together = state.range(1) != 0;
  for (auto _ : state) {
    for (Extent& extent : extents) {
      extent = {&bench.source, i * kBlock, Bytes{kBlock}};
      i += 28657 % blocks;
      if (i >= blocks) i -= blocks;
    }
    if (together) {
      bench.cache->access(extents, found);
    } else {
      for (std::size_t k = 0; k < extents.size(); ++k) found[k] = bench.cache->access(extents[k]);
    }
    benchmark::DoNotOptimize(found.data());
  }
  state.SetLabel(together ? "together" : "one by one");
}
BENCHMARK(HitBatch)->ArgsProduct({{1000, 65000}, {0, 1}});

// A miss with free frames: lookup, policy, frame, index, transfer, completion, release.
void Miss(benchmark::State& state) {
  Bench bench(64_MiB);
  std::uint64_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(bench.cache->access(bench.block(i)));
    if (++i == 16000) {
      state.PauseTiming();
      bench.cache->clear();
      i = 0;
      state.ResumeTiming();
    }
  }
}
BENCHMARK(Miss);

// flush() of many blocks; the time is per block.
void Flush(benchmark::State& state) {
  constexpr int kBlocks = 16000;
  const Bench bench(64_MiB);
  for (auto _ : state) {
    for (std::uint64_t i = 0; i < kBlocks; ++i) (void)bench.cache->access(bench.block(i * 3));
    const auto begin = std::chrono::steady_clock::now();
    bench.cache->flush();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(took.count() / kBlocks);
  }
}
BENCHMARK(Flush)->UseManualTime()->Iterations(50);

// The Mover's share of a miss, for comparison.
void TransferAlone(benchmark::State& state) {
  Bench bench(1_MiB);
  std::vector<std::byte> target(kBlock);
  const MemoryRange to(target, kDram);
  for (auto _ : state) {
    benchmark::DoNotOptimize(bench.mover->copy(whole(to), bench.block(0)));
  }
}
BENCHMARK(TransferAlone);

// A miss that evicts first.
void Evict(benchmark::State& state) {
  shared_bench = nullptr;
  static constexpr std::array kOrders = {"s3-fifo", "sieve", "clock"};
  const char* const order = kOrders[static_cast<std::size_t>(state.range(0))];
  Bench bench(8_MiB, *eviction_order(order));
  std::uint64_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(bench.cache->access(bench.block(i++)));
  state.SetLabel(order);
}
BENCHMARK(Evict)->Arg(0)->Arg(1)->Arg(2);

enum class Scan : std::uint8_t { none, without_a_plan, by_a_plan, by_plans_of_matches, in_pieces };

// Share of hits among lookups of 8 KiB, with Zipf's distribution (0.99) over 10 times the budget,
// beside a scan that reads as many bytes: 32 KiB of a 1 GiB object at a time. The scan uses no
// plan, a plan with items of 64 KiB or 1 MiB, or two plans, where a second one is made for each
// match of the first.
void HitsBesideScan(benchmark::State& state) {
  shared_bench = nullptr;
  constexpr std::uint64_t kPage = 8192, kPages = 40960, kObject = 1 << 30, kStep = 32768;
  constexpr int kLookups = 600'000;
  const auto kind = static_cast<Scan>(state.range(0));
  const Bench bench(Bytes{kPages / 10 * kPage}, s3_fifo, kPages * kPage);
  std::vector<std::byte> memory(kObject);
  const MemoryRange scanned(memory, kHbm);
  std::vector<double> sums(kPages);
  double sum = 0;
  for (std::uint64_t i = 0; i < kPages; ++i) {
    sums[i] = sum += std::pow(static_cast<double>(i + 1), -0.99);
  }
  const auto items = [&](std::uint64_t begin, std::uint64_t bytes, std::uint64_t each) {
    std::vector<Extent> found;
    for (std::uint64_t at = 0; at < bytes; at += each) {
      found.push_back({&scanned, (begin + at) % kObject, Bytes{each}});
    }
    return found;
  };
  const std::uint64_t item = kind == Scan::in_pieces ? 1 << 20 : 1 << 16;
  const PrefetchOptions window{.window = 2_MiB};
  Random random(1);
  Prefetch plan;
  std::uint64_t at = 0;
  const auto scan = [&] {
    const AccessOptions by_plan{.plan = kind == Scan::without_a_plan ? nullptr : &plan};
    if (by_plan.plan != nullptr && at % (64 << 20) == 0) {
      plan = bench.cache->prefetch(items(at, 64 << 20, item), window);
    }
    const bool matches = kind == Scan::by_plans_of_matches && random.chance(0.2);
    (void)bench.cache->access({&scanned, at % kObject, Bytes{kStep}}, by_plan);
    at += kStep;
    if (!matches) return;
    const auto match = items(at + kObject / 2, 65536, 16384);
    const Prefetch second = bench.cache->prefetch(match, window);
    for (const Extent& extent : match) (void)bench.cache->access(extent, {.plan = &second});
  };
  std::uint64_t hits = 0;
  for (auto _ : state) {
    for (int i = 0; i < kLookups; ++i) {
      const auto rank = std::ranges::lower_bound(sums, random.unit() * sum) - sums.begin();
      // An odd multiple, so that popular pages are not neighbours.
      const std::uint64_t page = static_cast<std::uint64_t>(rank) * 16381 % kPages;
      const Block block = bench.cache->access({&bench.source, page * kPage, Bytes{kPage}});
      hits += i >= kLookups / 3 && block.hit();
      if (kind != Scan::none && i % 4 == 0) scan();
    }
  }
  state.counters["hits"] = static_cast<double>(hits) / (kLookups - kLookups / 3);
}
BENCHMARK(HitsBesideScan)->DenseRange(0, 4)->Iterations(1);

// An access that is refused, because all blocks are pinned.
void Refused(benchmark::State& state) {
  if (state.thread_index() == 0) shared_bench = std::make_unique<Bench>(64_MiB, s3_fifo, 128 << 20);
  static std::vector<Block> held;
  if (state.thread_index() == 0) {
    for (std::uint64_t i = 0; i < (64 << 20) / kBlock; ++i) {
      held.push_back(shared_bench->cache->access(shared_bench->block(i)));
    }
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(shared_bench->cache->access(shared_bench->block(20000)));
  }
  if (state.thread_index() == 0) {
    held.clear();
    shared_bench.reset();
  }
}
BENCHMARK(Refused)->Threads(1)->Threads(2)->UseRealTime();

// Insertions into an index that grows from nothing to range(0) items. Each is timed alone.
void Grow(benchmark::State& state) {
  struct Item {
    Range bytes;
    ChainLink<Item> next_in_cell;
    const Range& range() const { return bytes; }
  };
  Histogram times;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  for (auto _ : state) {
    std::vector<Item> items(static_cast<std::size_t>(state.range(0)));
    RangeIndex<Item> index;
    for (std::uint64_t i = 0; i < items.size(); ++i) {
      items[i].bytes = {ObjectId{1}, i * kBlock, kBlock};
      const auto begin = now();
      index.insert(items[i]);
      times.record(static_cast<std::uint64_t>((now() - begin).count()));
    }
  }
  for (const auto& [name, q] : {std::pair("p50", 0.5), {"p99.99", 0.9999}, {"max", 1.0}}) {
    state.counters[name] = static_cast<double>(times.quantile(q).value_or(0));
  }
}
BENCHMARK(Grow)->Arg(100'000)->Arg(10'000'000)->Iterations(1);

enum class Beside : std::uint8_t { nothing, a_plan, a_plan_that_pauses };

// The consumer of a plan of 4 KiB blocks that are not neighbours, until `end`. If it pauses,
// another plan takes its blocks meanwhile, so that it starts a whole window afterwards.
void consume(const Bench& bench, bool pauses, const std::atomic<bool>& end) {
  std::vector<Extent> items(8000), others(8000);
  for (std::uint64_t i = 0; i < items.size(); ++i) {
    items[i] = bench.block(2 * i + 100);
    others[i] = bench.block(2 * i + 16101);
  }
  while (!end) {
    const Prefetch plan = bench.cache->prefetch(items, {.named = true});
    for (std::size_t i = 0; i < items.size() && !end; ++i) {
      if (pauses && i == 1000) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1100});
        (void)bench.cache->prefetch(others, {.named = true});
      }
      (void)bench.cache->access(items[i], {.plan = &plan});
    }
  }
}

// Times each hit of one hot block alone, with both clock reads. Runs for 8 s.
void HitBeside(benchmark::State& state) {
  shared_bench = nullptr;
  const Bench bench(64_MiB, s3_fifo, 160 << 20);
  const auto beside = static_cast<Beside>(state.range(0));
  const Extent hot = bench.block(0);
  (void)bench.cache->access(hot);
  std::atomic<bool> end{false};
  std::jthread consumer([&] {
    if (beside != Beside::nothing) consume(bench, beside == Beside::a_plan_that_pauses, end);
  });
  Histogram times;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  for (auto _ : state) {
    const auto last = now() + std::chrono::seconds{8};
    for (auto begin = now(); begin < last; begin = now()) {
      benchmark::DoNotOptimize(bench.cache->access(hot));
      times.record(static_cast<std::uint64_t>((now() - begin).count()));
    }
  }
  end = true;
  for (const auto& [name, q] : {std::pair("p50", 0.5), {"p99", 0.99}, {"p99.99", 0.9999}}) {
    state.counters[name] = static_cast<double>(times.quantile(q).value_or(0));
  }
  state.counters["max"] = static_cast<double>(times.quantile(1).value_or(0));
}
BENCHMARK(HitBeside)->Arg(0)->Arg(1)->Arg(2)->Iterations(1)->UseRealTime();

}  // namespace
}  // namespace headrace
