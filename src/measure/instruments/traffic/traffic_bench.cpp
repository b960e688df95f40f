// SPDX-License-Identifier: Apache-2.0
// The benefit of the race: the plain loop, its winner, hand-written loops and copies, on all CPUs,
// past the caches, in bytes per second of CPU time (other programs may run). Interleave them, since
// a shared machine drifts: --benchmark_enable_random_interleaving=true --benchmark_repetitions=15
#include <benchmark/benchmark.h>

#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include "headrace/buffer.h"
#include "headrace/copy.h"
#include "measure/instruments/traffic/traffic_race.h"
#include "measure/instruments/worker_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace::instruments {
namespace {

constexpr Bytes kEach = 256_MiB;  // per thread
constexpr Nanoseconds kTime = std::chrono::milliseconds{20};
constexpr std::size_t kChunk = 1 << 20;

struct Ground {
  Machine machine = Machine::discover().value();
  CpuSet cpus = usable_cpus(&machine.nodes.front());
  std::unique_ptr<Buffer> buffer =
      allocate(machine, kEach* cpus.size(), Placement::on(machine.nodes.front().id)).value();

  std::span<std::byte> part(std::size_t i) {
    return buffer->bytes().subspan(i * kEach.value, kEach.value);
  }
};

Ground& ground() {
  static Ground made;
  return made;
}

Nanoseconds cpu_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds{t.tv_sec} + Nanoseconds{t.tv_nsec};
}

// Each thread calls step(its part, position in it) repeatedly. A step moves `moved` bytes and
// advances by kChunk within `span`.
template <class Step>
void together(benchmark::State& state, std::size_t span, std::size_t moved, const Step& step) {
  Ground& all = ground();
  std::vector<std::size_t> at(all.cpus.size());
  double bytes = 0;
  for (auto _ : state) {
    std::vector<double> rates(all.cpus.size());
    (void)run_together(all.cpus, [&](std::size_t i) {
      const Nanoseconds begin = cpu_time();
      std::size_t steps = 0;
      while (cpu_time() - begin < kTime) {
        at[i] = at[i] + kChunk > span ? 0 : at[i];
        step(all.part(i), at[i]);
        at[i] += kChunk;
        ++steps;
      }
      rates[i] = static_cast<double>(steps * moved) / seconds(cpu_time() - begin);
    });
    for (const double rate : rates) bytes += rate * seconds(kTime);
    state.SetIterationTime(seconds(kTime));
  }
  state.counters["bytes_per_second"] =
      benchmark::Counter(bytes / seconds(kTime) / static_cast<double>(state.iterations()));
}

void traffic(benchmark::State& state, const Mix& mix, bool raced) {
  Ground& all = ground();
  std::vector<TrafficArea> areas;
  for (std::size_t i = 0; i < all.cpus.size(); ++i) areas.push_back(divide(mix, all.part(i)));
  const Shape shape = raced ? Races().fastest(mix, all.cpus, "near", areas).value() : Shape{};
  const TrafficKernel kernel(mix, shape);
  state.SetLabel(kernel.shape().name());
  // The chunk counts the lines of all streams.
  const std::size_t rounds = kChunk / 64 / kernel.lines_per_round();
  const std::size_t span = kernel.rounds(areas[0]) / rounds * kChunk;
  together(state, span, rounds * kernel.lines_per_round() * 64, [&](auto part, std::size_t at) {
    kernel.run(divide(mix, part), at / kChunk * rounds, rounds);
    kernel.finish();
  });
}

void copying(benchmark::State& state, void (*copy)(void*, const void*, std::size_t)) {
  together(state, kEach.value / 2, 2 * kChunk, [&](auto part, std::size_t at) {
    copy(part.data() + kEach.value / 2 + at, part.data() + at, kChunk);
  });
}

#if defined(__x86_64__)

// As written by hand: sums of the words of `kStreams` places, prefetched `ahead`.
template <std::size_t kStreams>
[[gnu::target("avx2")]] void sum_by_hand(const std::byte* from, std::size_t bytes,
                                         std::size_t ahead) {
  __m256i sums[kStreams * 2] = {};
  const std::size_t apart = bytes / kStreams;
  for (std::size_t at = 0; at < apart; at += 64) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const auto* line = reinterpret_cast<const __m256i*>(from + stream * apart + at);
      if (ahead > 0) {
        _mm_prefetch(reinterpret_cast<const char*>(line) + ahead, _MM_HINT_T0);
      }
      sums[2 * stream] = _mm256_add_epi64(sums[2 * stream], _mm256_load_si256(line));
      sums[2 * stream + 1] = _mm256_add_epi64(sums[2 * stream + 1], _mm256_load_si256(line + 1));
    }
  }
  for (__m256i& sum : sums) benchmark::DoNotOptimize(sum);
}

template <std::size_t kStreams>
void by_hand(benchmark::State& state) {
  const auto ahead = static_cast<std::size_t>(state.range(0));
  together(state, kEach.value, kChunk, [&](auto part, std::size_t at) {
    sum_by_hand<kStreams>(part.data() + at, kChunk, ahead);
  });
}
BENCHMARK(by_hand<1>)->Arg(0)->Arg(512)->Arg(2048)->UseManualTime()->Iterations(1);
BENCHMARK(by_hand<2>)->Arg(0)->Arg(512)->Arg(2048)->UseManualTime()->Iterations(1);
BENCHMARK(by_hand<4>)->Arg(0)->Arg(512)->Arg(2048)->UseManualTime()->Iterations(1);

#endif

bool register_all() {
  const auto add = [](const std::string& name, auto&&... rest) {
    benchmark::RegisterBenchmark(name.c_str(), rest...)->UseManualTime()->Iterations(1);
  };
  for (const Mix& mix : mixes()) {
    add("plain/" + std::string(mix.name), traffic, mix, false);
    add("raced/" + std::string(mix.name), traffic, mix, true);
  }
  add("copy_bytes", copying,
      [](void* to, const void* from, std::size_t n) { copy_bytes(to, from, n); });
  add("memcpy", copying,
      [](void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); });
  return true;
}
[[maybe_unused]] const bool registered = register_all();

}  // namespace
}  // namespace headrace::instruments
