// SPDX-License-Identifier: Apache-2.0
// The rate of loads of KV blocks: hits in DRAM, and from SSD at depth, layer by layer and whole.
// Also the time of the call, and until the first layer is there (seconds).
//
// Blocks are those of an 8B model: 2 MiB, fragments of 64 KiB. HEADRACE_BENCH_FOLDER names a folder
// on the measured device (default: the temporary directory), HEADRACE_BENCH_BLOCKS the number of
// blocks. The bytes are random, and the store verifies each load. `raw` is one move of as many
// bytes from the same file, without keys, checksums or layers.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <time.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "headrace/backend.h"
#include "headrace/buffer.h"
#include "headrace/file.h"
#include "headrace/kvcache/store.h"
#include "headrace/random.h"

namespace headrace {
namespace {

const kvcache::Geometry kGeometry{.model = "8b", .layers = 32, .kv_heads = 8, .head_dim = 128};

std::size_t block_count() {
  const char* const given = getenv("HEADRACE_BENCH_BLOCKS");
  return given == nullptr ? 16 : std::stoul(given);
}

struct Bench {
  Bench()
      : count(block_count()),
        folder(make_folder()),
        machine(*Machine::discover({.storage = {folder}})),
        backends(*Backends::open(machine)),
        mover(machine, backends),
        memory(*allocate(machine, kGeometry.block() * count, Placement::on(NodeKind::dram))) {
    std::vector<std::uint32_t> tokens(count * kGeometry.block_tokens);
    keys = kvcache::keys(kGeometry, tokens);
    Random random(1);
    for (std::size_t i = 0; i + 8 <= memory->size().value; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(memory->memory() + i, &word, 8);
    }
  }
  ~Bench() {
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  static std::filesystem::path make_folder() {
    const char* const given = getenv("HEADRACE_BENCH_FOLDER");
    const std::filesystem::path parent =
        given == nullptr ? std::filesystem::temp_directory_path() : std::filesystem::path(given);
    std::string pattern = parent / "headrace-kv-bench-XXXXXX";
    return mkdtemp(pattern.data());
  }
  // All blocks in the first tier and in the folder. `few`: the first tier has only one slot.
  bool open(bool few, benchmark::State& state) {
    auto made = kvcache::Store::open(
        mover, {.geometry = kGeometry,
                .tiers = {{.budget = kGeometry.block() * (few ? 1 : count + 1),
                           .memory = Placement::on(NodeKind::dram)},
                          {.budget = kGeometry.block() * (count + 1), .folder = folder / "kv"}},
                .in_flight = 1_GiB});
    if (!made) return state.SkipWithError(made.error().message.c_str()), false;
    store = std::move(*made);
    const auto stored = store->store(keys, whole(*memory));
    if (!stored || !stored->wait() || !store->flush()) {
      return state.SkipWithError("blocks could not be stored"), false;
    }
    return true;
  }

  const std::size_t count;
  const std::filesystem::path folder;
  const Machine machine;
  const Backends backends;
  Mover mover;
  const std::unique_ptr<Buffer> memory;
  std::vector<kvcache::Key> keys;
  std::unique_ptr<kvcache::Store> store;
};

void run(benchmark::State& state, bool from_folder, bool layer_order) {
  Bench bench;
  if (!bench.open(from_folder, state)) return;
  const kvcache::LoadOptions options{.layer_order = layer_order, .promote = false};
  Nanoseconds called{}, first{};
  for (auto _ : state) {
    const Nanoseconds begin = system_clock().now();
    const auto load = bench.store->load(bench.keys, whole(*bench.memory), options);
    called += system_clock().now() - begin;
    if (!load || !load->wait_layer(0)) return state.SkipWithError("a load failed");
    first += system_clock().now() - begin;
    if (!load->wait()) return state.SkipWithError("a load failed");
  }
  const auto mean = [&](Nanoseconds sum) {
    return benchmark::Counter(seconds(sum), benchmark::Counter::kAvgIterations);
  };
  state.counters["call"] = mean(called);
  state.counters["first_layer"] = mean(first);
  state.SetBytesProcessed(
      static_cast<std::int64_t>(state.iterations() * bench.count * kGeometry.block().value));
}

void BM_LoadFromDram(benchmark::State& state) { run(state, false, state.range(0) != 0); }
void BM_LoadFromFolder(benchmark::State& state) { run(state, true, state.range(0) != 0); }
BENCHMARK(BM_LoadFromDram)->ArgName("layers")->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK(BM_LoadFromFolder)->ArgName("layers")->Arg(0)->Arg(1)->UseRealTime();

void BM_RawReads(benchmark::State& state) {
  Bench bench;
  if (!bench.open(true, state)) return;
  const auto file = File::open(bench.machine, bench.folder / "kv" / "blocks");
  if (!file) return state.SkipWithError(file.error().message.c_str());
  for (auto _ : state) {
    const auto copy =
        bench.mover.copy(whole(*bench.memory), {file->get(), 0, bench.memory->size()});
    if (!copy.wait()) return state.SkipWithError("a read failed");
  }
  state.SetBytesProcessed(
      static_cast<std::int64_t>(state.iterations() * bench.memory->size().value));
}
BENCHMARK(BM_RawReads)->UseRealTime();

// CPU time of the calling thread for a store (`loads` 0) or load of 64 blocks of 16 KiB, over a
// folder alone, as engines call them. The wait for its end is not counted.
void BM_Submit(benchmark::State& state) {
  constexpr std::size_t kBlocks = 64, kCalls = 64;
  const kvcache::Geometry geometry{.model = "opaque",
                                   .layers = 1,
                                   .kv_heads = 1,
                                   .head_dim = 16384,
                                   .element_bytes = 1,
                                   .block_tokens = 1,
                                   .tensors = 1};
  Bench bench;
  auto made = kvcache::Store::open(bench.mover,
                                   {.geometry = geometry,
                                    .tiers = {{.budget = geometry.block() * kBlocks * (kCalls + 1),
                                               .folder = bench.folder / "calls"}},
                                    .in_flight = 1_GiB,
                                    .workers = 2});
  if (!made) return state.SkipWithError(made.error().message.c_str());
  kvcache::Store& store = **made;
  const auto memory =
      *allocate(bench.machine, geometry.block() * kBlocks, Placement::on(NodeKind::dram));
  const bool loads = state.range(0) != 0;
  std::uint64_t call = 0;
  const auto keys = [&](std::uint64_t of) {
    std::vector<kvcache::Key> keys(kBlocks);
    for (std::size_t i = 0; i < kBlocks; ++i) keys[i] = {of, i};
    return keys;
  };
  for (std::uint64_t i = 0; loads && i < kCalls; ++i) {
    if (!store.store(keys(i), whole(*memory))->wait()) return state.SkipWithError("not stored");
  }
  const auto cpu = [] {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  for (auto _ : state) {
    const auto wanted = keys(loads ? call % kCalls : call);
    ++call;
    const double begin = cpu();
    if (loads) {
      auto load = store.load(wanted, whole(*memory), {.layer_order = false, .promote = false});
      state.SetIterationTime(cpu() - begin);
      if (!load || !load->wait()) return state.SkipWithError("a load failed");
    } else {
      auto stored = store.store(wanted, whole(*memory));
      state.SetIterationTime(cpu() - begin);
      if (!stored || !stored->wait()) return state.SkipWithError("a store failed");
    }
  }
}
BENCHMARK(BM_Submit)->ArgName("loads")->Arg(0)->Arg(1)->UseManualTime();

// The cost of match() apart from the lookup: the keys of 8192 tokens.
void BM_Keys(benchmark::State& state) {
  const std::vector<std::uint32_t> tokens(8192);
  for (auto _ : state) benchmark::DoNotOptimize(kvcache::keys(kGeometry, tokens));
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * 512);
}
BENCHMARK(BM_Keys);

}  // namespace
}  // namespace headrace
