// SPDX-License-Identifier: Apache-2.0
// The text form of plans, and the choice of a tier for each arena.
#include <gtest/gtest.h>

#include <random>

#include "headrace/tier/arena.h"
#include "tier/arena/names.h"

namespace headrace {
namespace {

ArenaUse use(std::string name, Bytes most, double heat) {
  return {.name = std::move(name), .most = most, .heat = heat, .looks = 1};
}

std::string place_of(const ArenaPlan& plan, std::string_view name) {
  for (const ArenaPlace& each : plan.arenas) {
    if (each.name == name) return each.place;
  }
  return "nowhere";
}

void expect_no_plan(std::string_view text, const char* word) {
  const auto plan = ArenaPlan::parse(text);
  ASSERT_FALSE(plan) << text;
  EXPECT_EQ(plan.error().code, ErrorCode::invalid);
  EXPECT_NE(plan.error().message.find(word), std::string::npos) << plan.error().message;
}

TEST(ArenaNames, AreWordsThatALineCanHold) {
  for (const auto* name : {"a", "kv/index", "Layer.0:k_cache-1"}) EXPECT_TRUE(is_arena_name(name));
  for (const auto* name : {"", "a b", "a\nb", "a#", "\xc3\xa4"}) EXPECT_FALSE(is_arena_name(name));
  EXPECT_TRUE(is_arena_name(std::string(64, 'a')));
  EXPECT_FALSE(is_arena_name(std::string(65, 'a')));
}

TEST(ArenaPlan, IsATextThatPeopleRead) {
  const ArenaPlan plan{{{"index", "hbm:dram", 64_MiB, 0.9375}, {"values", "dram", 4_GiB, 0.0}}};
  EXPECT_EQ(plan.to_text(),
            "headrace arenas 1\n"
            "# name place most_bytes heat\n"
            "index hbm:dram 67108864 0.938\n"
            "values dram 4294967296 0.000\n");
}

TEST(ArenaPlan, IsReadAsItWasWritten) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    ArenaPlan plan;
    for (std::size_t i = 0; i < random() % 20; ++i) {
      plan.arenas.push_back({.name = "arena." + std::to_string(i),
                             .place = std::to_string(random() % 16) + ":dram",
                             .most = {random()},
                             .heat = static_cast<double>(random() % 1001) / 1000});
    }
    EXPECT_EQ(ArenaPlan::parse(plan.to_text()).value(), plan);
  }
}

TEST(ArenaPlan, MayBeWrittenByHand) {
  const auto plan =
      ArenaPlan::parse("headrace arenas 1\n\n  index   hbm # of the tree\n# values\n");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->arenas, (std::vector<ArenaPlace>{{"index", "hbm", {}, {}, "of the tree"}}));
}

TEST(ArenaPlan, MayHaveTheLineEndsAndTabsOfOtherEditors) {
  const auto plan = ArenaPlan::parse("\xef\xbb\xbfheadrace arenas 1\r\nindex\thbm\t1\t0.5\r\n\r\n");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->arenas, (std::vector<ArenaPlace>{{"index", "hbm", 1_B, 0.5}}));
}

TEST(ArenaPlan, UnseenArenas_AreDistinguishedFromColdOnes) {
  const ArenaPlan plan{{{"cold", "dram", 1_B, 0.0},
                        {"part", "dram", 1_B, 0.5, "some was not seen"},
                        {"index", "-", 1_B, {}, "two lines\nat # most"}}};
  EXPECT_EQ(plan.to_text(),
            "headrace arenas 1\n"
            "# name place most_bytes heat\n"
            "cold dram 1 0.000\n"
            "part dram 1 0.500 # some was not seen\n"
            "index - 1 - # two lines at # most\n");
  const auto read = ArenaPlan::parse(plan.to_text()).value();
  EXPECT_EQ(read.to_text(), plan.to_text());
  EXPECT_EQ(read.arenas[2].heat, std::nullopt);
}

TEST(ArenaPlan, RefusesWhatIsNone) {
  const std::string head = "headrace arenas 1\n";
  for (const auto& [text, word] : {std::pair{std::string(), "first line"},
                                   {"headrace arenas 2\na dram\n", "first line"},
                                   {head + "a\n", "line 2"},
                                   {head + "a dram\na hbm\n", "line 3"},
                                   {head + "a dram -1\n", "whole number"},
                                   {head + "a dram 1 1.5\n", "0 to 1"},
                                   {head + "a dram 1 nan\n", "0 to 1"},
                                   {head + "a dram 1 0.5 more\n", "line 2"},
                                   {head + "a \x01\n", "line 2"},
                                   {head + "a dram 99999999999999999999\n", "whole number"}}) {
    expect_no_plan(text, word);
  }
}

TEST(PlanArenas, PutsTheHottestWhereThereIsRoomForThemWhole) {
  const std::vector<ArenaUse> uses{use("cold", 1_GiB, 0.1), use("large", 3_GiB, 0.9),
                                   use("hot", 1_GiB, 1.0), use("warm", 1_GiB, 0.5)};
  const std::vector<ArenaTier> tiers{{"hbm:dram", 2_GiB}, {"dram", {}}};
  const auto plan = plan_arenas(uses, tiers).value();
  ASSERT_EQ(plan.arenas.size(), 4u);
  EXPECT_EQ(plan.arenas[0].name, "hot");
  EXPECT_EQ(place_of(plan, "hot"), "hbm:dram");
  EXPECT_EQ(place_of(plan, "large"), "dram") << "no room for it";
  EXPECT_EQ(place_of(plan, "warm"), "hbm:dram") << "what is left is enough for it";
  EXPECT_EQ(place_of(plan, "cold"), "dram");
}

TEST(PlanArenas, FillsTierAfterTier) {
  const std::vector<ArenaUse> uses{use("a", 2_B, 0.3), use("b", 2_B, 0.2), use("c", 2_B, 0.1)};
  const std::vector<ArenaTier> tiers{{"hbm", 2_B}, {"dram", 2_B}, {"cxl", 0_B}};
  const auto plan = plan_arenas(uses, tiers).value();
  EXPECT_EQ(place_of(plan, "a"), "hbm");
  EXPECT_EQ(place_of(plan, "b"), "dram");
  EXPECT_EQ(place_of(plan, "c"), "cxl");
}

TEST(PlanArenas, PutsTheColdInTheLastAndLeavesWhatWasNotSeenUnplaced) {
  std::vector<ArenaUse> uses{use("never-touched", 1_B, 0), use("never-seen", 1_B, 0)};
  uses[1].looks = 0;
  uses[1].why_unseen = "it was short";
  const std::vector<ArenaTier> tiers{{"hbm", 1_GiB}, {"dram", {}}};
  const auto plan = plan_arenas(uses, tiers).value();
  EXPECT_EQ(plan.arenas, (std::vector<ArenaPlace>{{"never-touched", "dram", 1_B, 0.0},
                                                  {"never-seen", "-", 1_B, {}, "it was short"}}));
}

TEST(PlanArenas, RefusesNoTiers) {
  EXPECT_EQ(plan_arenas({}, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(plan_arenas({}, std::vector<ArenaTier>{{"a b", {}}}).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
