// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/scenarios.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "benchmarks/cache/stores/chase_store.h"

namespace headrace::cache_bench {
namespace {

TEST(Scenarios, NumbersAreOfTheSourceAndFillStrides) {
  for (const Scenario& scenario : kScenarios) {
    for (const unsigned threads : {1U, 3U, 400U}) {
      for (const unsigned thread : {0U, threads - 1}) {
        const Draws numbers = numbers_for(scenario, thread, threads, 1);
        ASSERT_FALSE(numbers.empty()) << scenario.name;
        EXPECT_EQ(numbers.size() % kStride, 0U) << scenario.name;
        EXPECT_LT(std::ranges::max(numbers), scenario.blocks) << scenario.name;
      }
    }
  }
}

TEST(Scenarios, OneInTwentyOfMixedIsNotCached) {
  const Scenario& mixed = *find_scenario("mixed-5%-insert");
  const Draws numbers = numbers_for(mixed, 0, 1, 1);
  std::set<std::uint32_t> cold;
  for (const std::uint32_t block : numbers) {
    if (block >= mixed.warm) cold.insert(block);
  }
  EXPECT_NEAR(static_cast<double>(cold.size()) / static_cast<double>(numbers.size()), 0.05, 0.001);
}

TEST(Scenarios, ThreadsOfAScanReadApart) {
  const Scenario& scan = *find_scenario("scan-with-plan");
  std::set<std::uint32_t> seen;
  for (unsigned thread = 0; thread < 4; ++thread) {
    for (const std::uint32_t block : numbers_for(scan, thread, 4, 1)) {
      EXPECT_TRUE(seen.insert(block).second);
    }
  }
  EXPECT_EQ(seen.size(), scan.blocks);
}

TEST(Scenarios, WrongWord_IsCounted) {
  const Source source = Source::in_memory(512, 4096);
  const Source other = Source::in_memory(1024, 4096);
  ChaseStore store(source, 2_MiB);
  Draws numbers(kStride);
  for (std::uint32_t i = 0; i < kStride; ++i) numbers[i] = i;
  const std::atomic<bool> over = true;
  const Until until(over, 0);
  EXPECT_EQ(single(store, source, numbers, 4096, until).wrong, 0U);
  for (std::uint32_t& number : numbers) number ^= 1;
  EXPECT_EQ(single(store, other, numbers, 4096, until).wrong, 0U);
  const Source shifted = Source::in_memory(1024, 2048);
  EXPECT_GT(single(store, shifted, numbers, 2048, until).wrong, 0U);
}

}  // namespace
}  // namespace headrace::cache_bench
