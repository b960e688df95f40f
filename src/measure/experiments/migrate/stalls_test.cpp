// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/migrate/stalls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "headrace/random.h"

namespace headrace::experiment_migrate {
namespace {

// A clock that advances only by accesses, by a fixed time each.
struct Memory {
  std::uint64_t now = 0;
  std::uint64_t accesses = 0;
  std::uint64_t stall_every = 0;
  std::uint64_t stall = 0;
  std::uint64_t usual = 100;

  void access() {
    ++accesses;
    now += stall_every > 0 && accesses % stall_every == 0 ? stall : usual;
  }
};

Stalls watched(Memory memory, std::uint64_t accesses) {
  Stalls stalls;
  watch(
      stalls, [&] { return memory.now; }, [&] { memory.access(); },
      [&] { return memory.accesses < accesses; });
  return stalls;
}

TEST(Stalls, WithoutOneEachAccessCountsOnce) {
  const Stalls stalls = watched({}, 1000);
  EXPECT_EQ(stalls.count(), 1000u);
  for (const double q : {0.01, 0.5, 0.99, 1.0}) EXPECT_EQ(stalls.quantile(q), 100u) << q;
  EXPECT_FALSE(Stalls{}.quantile(0.5).has_value());
}

// One access of ten thousand took 1 ms, as long as all others together: half of the time in which
// accesses were due, not a ten thousandth.
TEST(Stalls, AStallCountsByItsTime) {
  const Stalls stalls = watched({.stall_every = 10'000, .stall = 1'000'000}, 10'000);
  EXPECT_LE(stalls.quantile(0.49), 107u);
  EXPECT_NEAR(static_cast<double>(*stalls.quantile(0.75)), 500'000, 40'000);
  EXPECT_NEAR(static_cast<double>(*stalls.quantile(0.95)), 900'000, 60'000);
  EXPECT_EQ(stalls.quantile(1), 1'000'000u);
}

// The same as a program counts that records every access that was due.
TEST(Stalls, AgreesWithAccessesDueOneByOne) {
  Random random(7);
  Stalls stalls;
  std::vector<std::uint64_t> due;
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t wait = i % 50 == 0 ? 200 + random.below(200'000) : 120;
    stalls.record(wait);
    due.push_back(wait);
    for (std::uint64_t left = wait; left >= 2 * 120; left -= 120) due.push_back(left - 120);
  }
  std::ranges::sort(due);
  for (const double q : {0.05, 0.2, 0.5, 0.9, 0.99, 0.999}) {
    const auto at = static_cast<std::size_t>(q * static_cast<double>(due.size()));
    const auto exact = static_cast<double>(due[at]);
    EXPECT_NEAR(static_cast<double>(*stalls.quantile(q)), exact, 0.08 * exact) << q;
  }
}

TEST(Stalls, TakesTheLongestAndTheShortest) {
  Stalls stalls;
  stalls.record(0);
  EXPECT_EQ(stalls.quantile(1), 1u);
  stalls.record(std::uint64_t{1} << 40);
  EXPECT_EQ(stalls.quantile(1), std::uint64_t{1} << 40);
  stalls.clear();
  EXPECT_EQ(stalls.count(), 0u);
}

}  // namespace
}  // namespace headrace::experiment_migrate
