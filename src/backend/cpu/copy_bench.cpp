// SPDX-License-Identifier: Apache-2.0
// Compares the copy kernels, cold and hot, and measures the look at the destination. For the whole
// range of sizes, with ratios and spread, use `headrace bench copy`.
#include "headrace/copy.h"

#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "backend/cpu/coldness.h"

namespace headrace {
namespace {

constexpr std::size_t kBytes = 1 << 20;

void memcpy_kernel(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void automatic(void* to, const void* from, std::size_t bytes) { copy_bytes(to, from, bytes); }

struct Buffers {
  std::unique_ptr<std::byte[]> to = std::make_unique<std::byte[]>(kBytes);
  std::unique_ptr<std::byte[]> from = std::make_unique<std::byte[]>(kBytes);
};

void cold(benchmark::State& state, CopyKernel kernel) {
  const Buffers buffers;
  for (auto _ : state) {
    state.PauseTiming();
    flush_from_caches(buffers.from.get(), kBytes);
    flush_from_caches(buffers.to.get(), kBytes);
    state.ResumeTiming();
    kernel.copy(buffers.to.get(), buffers.from.get(), kBytes);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(kBytes) * state.iterations());
}

void hot(benchmark::State& state, CopyKernel kernel) {
  const Buffers buffers;
  for (auto _ : state) {
    kernel.copy(buffers.to.get(), buffers.from.get(), kBytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(kBytes) * state.iterations());
}

void look(benchmark::State& state) {
  const Buffers buffers;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(looks_cold(buffers.to.get(), bytes));
}
BENCHMARK(look)->Arg(256 << 10)->Arg(1 << 20);

bool register_all() {
  auto kernels = copy_kernels();
  kernels.push_back({"memcpy", memcpy_kernel});
  kernels.push_back({"automatic", automatic});
  for (const CopyKernel& kernel : kernels) {
    benchmark::RegisterBenchmark(("cold/" + std::string(kernel.name)).c_str(), cold, kernel);
    benchmark::RegisterBenchmark(("hot/" + std::string(kernel.name)).c_str(), hot, kernel);
  }
  return true;
}
const bool registered = register_all();

}  // namespace
}  // namespace headrace
