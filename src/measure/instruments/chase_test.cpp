// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/chase.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/support/disassembly.h"

namespace headrace::instruments {
namespace {

std::size_t line_of(const std::vector<std::byte>& area, const void* at) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(at) - area.data()) / kLine;
}

RC_GTEST_PROP(ChaseTest, VisitsEveryLineOncePerRoundWindowByWindow, ()) {
  const auto lines = *rc::gen::inRange<std::size_t>(2, 300);
  const auto per_window = *rc::gen::inRange<std::size_t>(0, 400);
  std::vector<std::byte> area(lines * kLine + *rc::gen::inRange<std::size_t>(0, kLine));
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  void* const begin = make_cycle(area, Bytes{per_window * kLine}, random);
  const std::size_t window = per_window == 0 || per_window > lines ? lines : per_window;
  std::set<std::size_t> seen;
  std::size_t changes = 0;
  std::optional<std::size_t> current;
  void* at = begin;
  do {
    const std::size_t line = line_of(area, at);
    RC_ASSERT(line < lines);
    RC_ASSERT(line_of(area, line_of_cycle(area, seen.size())) == line);
    RC_ASSERT(index_in_cycle(at) == seen.size());
    RC_ASSERT(seen.insert(line).second);
    changes += current != line / window;
    current = line / window;
    at = *static_cast<void**>(at);
  } while (at != begin);
  RC_ASSERT(seen.size() == lines);
  RC_ASSERT(changes == (lines + window - 1) / window);
}

TEST(ChaseTest, TakesTheStepsItIsToldRoundedUp) {
  constexpr std::size_t kLines = 64;
  std::vector<std::byte> area(kLines * kLine);
  Random random(1);
  void* const begin = make_cycle(area, 0_B, random);
  EXPECT_EQ(chase(begin, kLines), begin) << "a whole round";
  EXPECT_EQ(chase(begin, 17), chase(begin, 32));
  EXPECT_NE(chase(begin, 16), begin);
}

TEST(ChaseTest, ATimedChaseCountsItsLoadsUntilTheTimeIsOver) {
  std::vector<std::byte> area(1000 * kLine);
  Random random(1);
  void* const begin = make_cycle(area, 0_B, random);
  std::uint64_t now = 0;
  int readings = 0;
  const auto counter = [&] { return now += ++readings == 3 ? 7 : 10; };
  const TimedChase timed = chase_for(begin, 35, SIZE_MAX, counter);
  EXPECT_EQ(timed.loads, 4U * 4096);
  EXPECT_EQ(timed.ticks, 37U);
  EXPECT_EQ(timed.fastest, 7U);
  EXPECT_EQ(timed.end, chase(begin, 4 * 4096));
  const TimedChase counted = chase_for(begin, 1'000'000, 8192, counter);
  EXPECT_EQ(counted.loads, 8192U);
  EXPECT_EQ(counted.ticks, 20U);
  EXPECT_EQ(counted.fastest, 10U);
}

TEST(ChaseTest, ChainsTogetherEndWhereEachWouldAlone) {
  constexpr std::size_t kLines = 1000;
  std::vector<std::byte> area(kLines * kLine);
  Random random(1);
  make_cycle(area, 0_B, random);
  for (const std::size_t count : kChainCounts) {
    std::vector<void*> chains;
    std::vector<void*> alone;
    for (std::size_t i = 0; i < count; ++i) {
      chains.push_back(line_of_cycle(area, kLines * i / count));
      alone.push_back(chase(chains.back(), 48));
    }
    chase_together(chains, 48);
    EXPECT_EQ(chains, alone) << count;
  }
  EXPECT_EQ(kChainCounts.front(), 1u);
}

TEST(ChaseTest, LinesThatAreDroppedFromCachesKeepTheirBytes) {
  std::vector<std::byte> area(100 * kLine + 1);
  for (std::size_t i = 0; i < area.size(); ++i) area[i] = static_cast<std::byte>(i);
  const std::vector<std::byte> before = area;
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_EQ(drop_from_caches(area), 101U) << "of the last line too";
#else
  EXPECT_EQ(drop_from_caches(area), 0U);
#endif
  EXPECT_EQ(area, before);
  int drops = 0;
  int lines = 0;
  test::for_each_instruction("drop_from_caches(", [&](const std::string&, const std::string& line) {
    ++lines;
    drops += line.find("clflush") != std::string::npos || line.find("civac") != std::string::npos;
  });
  if (lines == 0) GTEST_SKIP() << "no objdump";
  EXPECT_GT(drops, 0);
}

TEST(ChaseTest, OrdersDifferByTheirSeed) {
  const auto order = [](std::uint64_t seed) {
    std::vector<std::byte> area(1000 * kLine);
    Random random(seed);
    std::vector<std::size_t> lines;
    void* at = make_cycle(area, 0_B, random);
    for (int i = 0; i < 1000; ++i, at = *static_cast<void**>(at)) {
      lines.push_back(line_of(area, at));
    }
    return lines;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

}  // namespace
}  // namespace headrace::instruments
