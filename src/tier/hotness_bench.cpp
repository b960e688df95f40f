// SPDX-License-Identifier: Apache-2.0
// Costs of hotness sources per 4 KiB page: a look, and the accesses after it.
//
// Items are pages, so items_per_second is their rate; `per_page` is the time per page. Accesses are
// one write per page in address order; compare FirstAccess with Access.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "headrace/tier/hotness.h"
#include "memory/memory.h"

namespace headrace {
namespace {

constexpr std::size_t kPage = 4096;

struct Bench {
  explicit Bench(HotnessKind kind, Bytes size, Bytes chunk = 256_KiB) {
    auto opened = open_hotness(kind, {.chunk = chunk, .least_interval = {}});
    if (!opened) {
      error = opened.error().message;
      return;
    }
    source = *std::move(opened);
    if (kind == HotnessKind::memfd) {
      shared.emplace(*SharedMemory::make(size));
      memory = shared->bytes();
    } else {
      own = *MappedMemory::make(size, 2_MiB, 4_KiB, PROT_READ | PROT_WRITE);
      memory = {own.memory(), size.value};
      (void)::madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE);
    }
    access();
  }
  void access() {
    for (std::size_t at = 0; at < memory.size(); at += kPage) {
      volatile std::byte& byte = memory[at];
      byte = std::byte{1};
    }
  }
  void report(benchmark::State& state) const {
    const auto pages = static_cast<std::int64_t>(memory.size() / kPage);
    state.SetItemsProcessed(state.iterations() * pages);
    state.counters["per_page"] =
        benchmark::Counter(static_cast<double>(state.iterations() * pages),
                           benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  }

  std::string error;
  std::optional<SharedMemory> shared;
  MappedMemory own;
  std::span<std::byte> memory;
  std::unique_ptr<HotnessSource> source;
};

enum class Part { look, first_access, access };

// Measures a part: a look at memory with every page written since the last look; the first write to
// each page after a look; or the same writes without a look between them.
void measure(benchmark::State& state, HotnessKind kind, Part part) {
  Bench bench(kind, {static_cast<std::uint64_t>(state.range(0)) << 20});
  if (!bench.error.empty()) return state.SkipWithError(bench.error.c_str());
  if (part != Part::access && !bench.source->track(bench.memory)) {
    return state.SkipWithError("cannot track");
  }
  for (auto _ : state) {
    if (part != Part::access) state.PauseTiming();
    if (part == Part::first_access) benchmark::DoNotOptimize(bench.source->look());
    if (part == Part::look) bench.access();
    if (part != Part::access) state.ResumeTiming();
    if (part == Part::look) {
      benchmark::DoNotOptimize(bench.source->look());
    } else {
      bench.access();
    }
  }
  bench.report(state);
}
void Look(benchmark::State& state, HotnessKind kind) { measure(state, kind, Part::look); }
void FirstAccess(benchmark::State& state, HotnessKind kind) {
  measure(state, kind, Part::first_access);
}
void Access(benchmark::State& state, HotnessKind kind) { measure(state, kind, Part::access); }

// Tracks and untracks one more page while range(0) single pages, every second one, are tracked.
void Track(benchmark::State& state, HotnessKind kind) {
  const auto count = static_cast<std::size_t>(state.range(0));
  Bench bench(kind, {2 * (count + 1) * kPage});
  if (!bench.error.empty()) return state.SkipWithError(bench.error.c_str());
  const auto page = [&](std::size_t i) { return bench.memory.subspan(2 * i * kPage, kPage); };
  for (std::size_t i = 0; i < count; ++i) {
    if (!bench.source->track(page(i))) return state.SkipWithError("cannot track");
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(bench.source->track(page(count)));
    benchmark::DoNotOptimize(bench.source->untrack(page(count)));
  }
}

// Time from fork() to the child's end while range(0) chunks of one page are tracked.
void Fork(benchmark::State& state) {
  const auto chunks = static_cast<std::uint64_t>(state.range(0));
  Bench bench(HotnessKind::referenced, {(chunks + 1) * kPage}, {kPage});
  if (!bench.error.empty()) return state.SkipWithError(bench.error.c_str());
  if (chunks > 0 && !bench.source->track(bench.memory)) return state.SkipWithError("cannot track");
  for (auto _ : state) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
  }
}

#define HEADRACE_BENCH_SOURCES(bench)                                               \
  BENCHMARK_CAPTURE(bench, referenced, HotnessKind::referenced)->Arg(64)->Arg(512); \
  BENCHMARK_CAPTURE(bench, memfd, HotnessKind::memfd)->Arg(64)->Arg(512);           \
  BENCHMARK_CAPTURE(bench, written, HotnessKind::written)->Arg(64)->Arg(512)
HEADRACE_BENCH_SOURCES(Access);
HEADRACE_BENCH_SOURCES(FirstAccess);
HEADRACE_BENCH_SOURCES(Look);
BENCHMARK_CAPTURE(Track, referenced, HotnessKind::referenced)->Arg(0)->Arg(1000);
BENCHMARK_CAPTURE(Track, written, HotnessKind::written)->Arg(0)->Arg(1000);
BENCHMARK(Fork)->Arg(0)->Arg(1000)->Arg(30000);

}  // namespace
}  // namespace headrace
