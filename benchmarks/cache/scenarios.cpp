// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/scenarios.h"

#include <algorithm>
#include <numeric>

namespace headrace::cache_bench {
namespace {

// 256 KiB: more than any predictor remembers, less than the cache of a core.
constexpr std::uint64_t kDraws = 1 << 16;
// One access in this many of `mixed` is to a block that is not cached.
constexpr std::uint64_t kInsertOneIn = 20;

Draws in_order(std::uint64_t first, std::uint64_t end, std::uint64_t begin) {
  Draws numbers(end - first);
  std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(first));
  std::rotate(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(begin - first),
              numbers.end());
  return numbers;
}

}  // namespace

const Scenario* find_scenario(std::string_view name) {
  const auto found = std::ranges::find(kScenarios, name, &Scenario::name);
  return found == kScenarios.end() ? nullptr : &*found;
}

Draws numbers_for(const Scenario& scenario, unsigned thread, unsigned threads, std::uint64_t seed) {
  Random random(seed * 4096 + thread);
  const std::uint64_t n = scenario.blocks;
  // Where thread i begins in [first, n): far from the others.
  const auto begin_of = [&](std::uint64_t first, std::uint64_t i) {
    return first + (n - first) / threads * i / kStride * kStride;
  };
  switch (scenario.order) {
    case Order::uniform: return uniform(random, n, kDraws);
    case Order::one: return Draws(kStride, static_cast<std::uint32_t>(n / 2));
    case Order::zipf: return zipf(random, seed, n, 0.99, kDraws);
    case Order::in_order:
      if (scenario.manner == Manner::planned) {
        const std::uint64_t first = begin_of(0, thread);
        const std::uint64_t length = std::max(n / threads / kStride, std::uint64_t{1}) * kStride;
        return in_order(first, std::min(first + length, n), first);
      }
      return in_order(scenario.pinned ? scenario.warm : 0, n, begin_of(scenario.warm, thread));
    case Order::mixed: break;
  }
  // Long enough for every uncached block, so that none returns soon.
  const std::uint64_t count = (n - scenario.warm) * kInsertOneIn / kStride * kStride;
  Draws numbers = uniform(random, scenario.warm, count);
  std::uint64_t cold = begin_of(scenario.warm, thread);
  for (std::uint64_t i = random.below(kInsertOneIn); i < count; i += kInsertOneIn) {
    numbers[i] = static_cast<std::uint32_t>(cold);
    if (++cold == n) cold = scenario.warm;
  }
  return numbers;
}

nlohmann::ordered_json told(const Timing& timing, std::uint64_t misses) {
  return {{"operations", timing.tally.operations},
          {"wrong", timing.tally.wrong},
          {"misses", misses},
          {"seconds", timing.seconds},
          {"thread_seconds", timing.thread_seconds},
          {"cpu_seconds", timing.cpu_seconds},
          {"process_seconds", timing.process_seconds}};
}

}  // namespace headrace::cache_bench
