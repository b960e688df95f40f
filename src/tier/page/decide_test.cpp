// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "headrace/tier/page_tier.h"

namespace headrace {
namespace {

constexpr Bytes kAll{1ull << 60};

ChunkPlace resident(std::uintptr_t begin, double heat, Bytes bytes = 1_MiB) {
  return {.begin = begin, .resident = bytes, .heat = heat};
}
ChunkPlace out(std::uintptr_t begin, double heat, Bytes bytes = 1_MiB) {
  return {.begin = begin, .out = bytes, .heat = heat};
}

std::vector<std::pair<std::uintptr_t, bool>> moves(const std::vector<TierDecision>& decisions) {
  std::vector<std::pair<std::uintptr_t, bool>> all;
  for (const TierDecision& each : decisions) {
    EXPECT_FALSE(each.reason.empty());
    all.emplace_back(each.begin, each.in);
  }
  return all;
}
using Moves = std::vector<std::pair<std::uintptr_t, bool>>;

TEST(Decide, SendsTheColdestOutUntilTheRestFits) {
  const std::vector chunks{resident(1, 0.9), resident(2, 0.1), resident(3, 0), resident(4, 0.5)};
  EXPECT_EQ(moves(decide(chunks, {.budget = 2_MiB}, kAll)), (Moves{{3, false}, {2, false}}));
  EXPECT_TRUE(decide(chunks, {.budget = 4_MiB}, kAll).empty());
}

TEST(Decide, BringsTheHottestInWhereThereIsRoom) {
  const std::vector chunks{out(1, 0.2), out(2, 0.9), resident(3, 0), out(4, 0.04)};
  EXPECT_EQ(moves(decide(chunks, {.budget = 8_MiB}, kAll)), (Moves{{2, true}, {1, true}}))
      << "the one colder than least_heat stays out";
}

TEST(Decide, LetsAChunkTakeThePlaceOfAColderOneOnly) {
  const std::vector chunks{resident(1, 0.5), out(2, 0.55), out(3, 0.65), resident(4, 0.52)};
  const TierPolicy policy{.budget = 2_MiB, .hysteresis = 0.1};
  EXPECT_EQ(moves(decide(chunks, policy, kAll)), (Moves{{1, false}, {3, true}}))
      << "0.55 is not hotter than 0.52 by more than 0.1";
}

TEST(Decide, Allowance_BoundsTheMoves) {
  const std::vector chunks{resident(1, 0), resident(2, 0.1), resident(3, 0.2), out(4, 0.9)};
  EXPECT_EQ(moves(decide(chunks, {.budget = 1_MiB}, 1_MiB)), (Moves{{1, false}}));
  EXPECT_TRUE(decide(chunks, {.budget = 3_MiB}, 1_MiB).empty()) << "out and in take 2 MiB";
  EXPECT_EQ(moves(decide(chunks, {.budget = 3_MiB}, 2_MiB)), (Moves{{1, false}, {4, true}}));
  EXPECT_TRUE(decide(chunks, {.budget = 1_MiB}, 0_B).empty());
}

TEST(Decide, KeepsAChunkThatIsHalfOutInOnePlace) {
  const std::vector<ChunkPlace> chunks{{.begin = 1, .resident = 1_MiB, .out = 1_MiB, .heat = 0.2},
                                       resident(2, 0.9, 2_MiB)};
  EXPECT_EQ(moves(decide(chunks, {.budget = 2_MiB}, kAll)), (Moves{{1, false}}));
  EXPECT_EQ(moves(decide(chunks, {.budget = 4_MiB}, kAll)), (Moves{{1, true}}));
}

TEST(Decide, ChunkInBackoff_StaysAndIsCounted) {
  std::vector chunks{resident(1, 0), resident(2, 0.1), resident(3, 0.2), out(4, 0.9)};
  chunks[0].backed_off = chunks[3].backed_off = true;
  EXPECT_EQ(moves(decide(chunks, {.budget = 2_MiB}, kAll)), (Moves{{2, false}}));
}

TEST(Decide, MovesOnlyWhatPaysForIt) {
  using std::chrono::microseconds, std::chrono::seconds;
  // 1000 accesses per second, each 100 ns faster: 1 ms in 10 s.
  const double heat =
      least_heat_that_pays(microseconds{200}, microseconds{100}, seconds{10}).value();
  EXPECT_DOUBLE_EQ(heat, 0.2);
  const TierPolicy policy{.budget = 2_MiB, .hysteresis = heat, .least_heat = heat};
  EXPECT_EQ(moves(decide(std::vector{out(1, 0.19), out(2, 0.2)}, policy, kAll)),
            (Moves{{2, true}}));
  EXPECT_TRUE(
      decide(std::vector{resident(1, 0.5), resident(2, 0.6), out(3, 0.69)}, policy, kAll).empty());
  const auto never = least_heat_that_pays(microseconds{1001}, microseconds{100}, seconds{10});
  ASSERT_FALSE(never);
  EXPECT_NE(never.error().message.find("at most 1000000 ns"), std::string::npos);
  EXPECT_FALSE(least_heat_that_pays({}, microseconds{1}, seconds{1}));
}

struct World {
  std::vector<ChunkPlace> chunks;
  Bytes resident_bytes() const {
    Bytes sum;
    for (const ChunkPlace& each : chunks) sum += each.resident;
    return sum;
  }
  void carry_out(const std::vector<TierDecision>& decisions) {
    for (const TierDecision& each : decisions) {
      auto& chunk = *std::ranges::find(chunks, each.begin, &ChunkPlace::begin);
      Bytes& from = each.in ? chunk.out : chunk.resident;
      RC_ASSERT(from == each.bytes);
      (each.in ? chunk.resident : chunk.out) += from;
      from = {};
    }
  }
};

World any_world(bool whole) {
  World world;
  const auto count = *rc::gen::inRange<std::uintptr_t>(0, 24);
  std::set<int> heats;
  for (std::uintptr_t i = 0; i < count; ++i) {
    int heat = *rc::gen::inRange(0, 1000);
    while (whole && !heats.insert(heat).second) ++heat;
    ChunkPlace chunk{.begin = i, .heat = heat / 1e3};
    const auto place = *rc::gen::inRange<std::uint64_t>(0, whole ? 2 : 5);
    chunk.resident = Bytes{whole ? 4 * place : place};
    chunk.out = Bytes{4 - chunk.resident.value};
    world.chunks.push_back(chunk);
  }
  return world;
}

RC_GTEST_PROP(DecideModel, KeepsTheHottestWhereNothingHinders, ()) {
  World world = any_world(true);
  const auto slots = *rc::gen::inRange<std::size_t>(1, 30);
  const TierPolicy policy{.budget = {4 * slots}, .hysteresis = 0, .least_heat = 0};
  world.carry_out(decide(world.chunks, policy, kAll));
  // The naive model: sort, and take as many as fit.
  std::vector<ChunkPlace> sorted = world.chunks;
  std::ranges::sort(sorted, std::greater{}, &ChunkPlace::heat);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    RC_ASSERT((sorted[i].resident.value > 0) == (i < slots));
  }
}

RC_GTEST_PROP(DecideModel, KeepsItsBounds, ()) {
  World world = any_world(false);
  const TierPolicy policy{.budget = {*rc::gen::inRange<std::uint64_t>(1, 100)},
                          .hysteresis = *rc::gen::inRange(0, 500) / 1e3,
                          .least_heat = *rc::gen::inRange(0, 500) / 1e3};
  const Bytes allowance{*rc::gen::inRange<std::uint64_t>(0, 200)};
  const Bytes before = world.resident_bytes();
  const auto decisions = decide(world.chunks, policy, allowance);
  Bytes moved;
  std::set<std::uintptr_t> once;
  for (const TierDecision& each : decisions) {
    moved += each.bytes;
    RC_ASSERT(once.insert(each.begin).second);
    RC_ASSERT(each.bytes.value > 0);
    RC_ASSERT(!each.in || each.heat >= policy.least_heat);
  }
  RC_ASSERT(moved <= allowance);
  // A swap of three chunks has 12 bytes: an allowance that grows to 12 completes all moves.
  RC_ASSERT(decide(world.chunks, policy, {12}).empty() ==
            decide(world.chunks, policy, kAll).empty());
  world.carry_out(decisions);
  RC_ASSERT(world.resident_bytes() <= std::max(policy.budget, before));
  // With an unlimited allowance nothing is left to decide: no two chunks keep swapping.
  world.carry_out(decide(world.chunks, policy, kAll));
  RC_ASSERT(world.resident_bytes() <= policy.budget);
  int rounds = 0;
  while (true) {
    const auto again = decide(world.chunks, policy, kAll);
    if (again.empty()) break;
    RC_ASSERT(++rounds < 30);
    world.carry_out(again);
  }
}

}  // namespace
}  // namespace headrace
