// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "place/advice/advice_testing.h"
#include "place/advice/curves.h"

namespace headrace {
namespace {

// GB/s by lines in flight at the memory, from all points of the published logs by exhaustive search
// (docs/design/advice.md): DRAM only, 3:1, by bandwidth, 1:1, 1:3, equal latency, the best.
struct Line {
  double lines;
  double gbps[7];
};
constexpr const char* kNames[] = {"node 0 only", "3:1",           "by bandwidth", "1:1",
                                  "1:3",         "equal latency", "best"};

const std::vector<Line> kRead = {
    {20, {12.5, 9.2, 7.8, 7.2, 5.9, 12.5, 12.5}},
    {80, {41.0, 35.0, 30.5, 28.0, 22.8, 41.0, 41.0}},
    {200, {66.9, 73.7, 66.4, 62.3, 46.8, 66.9, 74.8}},
    {300, {69.3, 89.3, 87.6, 81.1, 60.1, 74.6, 93.9}},
    {1000, {69.3, 92.5, 117.4, 96.1, 64.1, 117.2, 117.4}},
};
// MLC's 2:1: the traffic of a program with as many loads as stores.
const std::vector<Line> kTwoToOne = {
    {80, {38.2, 33.6, 27.2, 26.2, 20.4, 38.2, 38.2}},
    {140, {51.7, 51.8, 43.9, 42.0, 33.0, 51.7, 53.2}},
    {300, {61.1, 77.4, 76.9, 74.6, 56.4, 69.8, 82.0}},
    {1000, {61.5, 82.0, 115.5, 108.4, 72.3, 111.8, 115.5}},
};
// MLC's 1:1: the traffic of a program that only stores.
const std::vector<Line> kOneToOne = {
    {80, {36.5, 34.0, 28.3, 27.8, 22.5, 36.5, 36.5}},
    {140, {48.6, 51.3, 47.8, 47.0, 38.7, 48.6, 51.4}},
    {300, {58.8, 73.5, 75.9, 75.3, 57.1, 72.1, 81.7}},
    {1000, {59.7, 79.6, 114.1, 109.4, 72.9, 113.9, 114.1}},
};

const Profile& published() {
  static const Profile profile = *Profile::load("cxl-a1000");
  return profile;
}

const NamedSpread& find(const InterleaveAdvice& advice, const std::string& name) {
  return *std::ranges::find(advice.spreads, name, &NamedSpread::name);
}

void expect_table(const std::string& mix, const std::vector<Line>& table) {
  for (const Line& line : table) {
    const double lines = line.lines / mix_traffic(mix)->bus;
    const auto advice = advise_interleave(published(), {.mix = mix, .lines = lines});
    ASSERT_TRUE(advice) << advice.error().message;
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      const double said = find(*advice, kNames[i]).spread->bandwidth / 1e9;
      EXPECT_NEAR(said, line.gbps[i], line.gbps[i] * 0.02)
          << mix << ", " << line.lines << " lines, " << kNames[i];
    }
  }
}

TEST(InterleaveTest, ThePublishedCurvesGiveTheSameTables) {
  expect_table("read", kRead);
  expect_table("1:1", kTwoToOne);
  expect_table("write", kOneToOne);
}

TEST(InterleaveTest, TheBestIsTheBestNamed) {
  for (const char* mix : {"read", "2:1", "1:1", "write", "nt_write", "3:1", "5:2"}) {
    for (const double lines : {5.0, 100.0, 150.0, 256.0, 333.0, 500.0, 2000.0}) {
      const auto advice = advise_interleave(published(), {.mix = mix, .lines = lines});
      ASSERT_TRUE(advice) << advice.error().message;
      const double best = find(*advice, "best").spread->bandwidth;
      for (const NamedSpread& each : advice->spreads) {
        EXPECT_LE(each.spread->bandwidth, best * 1.001) << mix << lines << each.name;
      }
      EXPECT_GE(find(*advice, "weights").spread->bandwidth, best * (1 - kWeightLoss));
    }
  }
}

TEST(InterleaveTest, LoadedTiers_AreThoseOfTheAdvice) {
  const auto advice = advise_interleave(published(), {.mix = "3:1", .lines = 200});
  const auto tiers = loaded_tiers(published(), {.mix = "3:1"});
  ASSERT_EQ(tiers->size(), advice->nodes.size());
  for (std::size_t i = 0; i < tiers->size(); ++i) {
    EXPECT_EQ((*tiers)[i].node, advice->nodes[i].node);
    EXPECT_EQ((*tiers)[i].curve.best(), advice->nodes[i].best);
  }
  const auto none = loaded_tiers(*Profile::load("one-node"));
  EXPECT_EQ(none.error().code, ErrorCode::absent);
}

TEST(InterleaveTest, TheFlipIsNearSevenEighthsOfDramForReads) {
  const auto advice = advise_interleave(published(), {.lines = 256});
  ASSERT_TRUE(advice->flip);
  EXPECT_NEAR(advice->flip->bandwidth / 69.3e9, 0.87, 0.02);
  EXPECT_EQ(advice->nodes[0].weight, 3u);
  EXPECT_EQ(advice->nodes[1].weight, 1u);
}

TEST(InterleaveTest, ADemandIsTheProgramsAndItsTrafficTheMemorys) {
  const auto advice = advise_interleave(published(), {.mix = "1:1", .demand = {{30e9}}});
  EXPECT_DOUBLE_EQ(*advice->load.demand, 45e9);
  EXPECT_DOUBLE_EQ(find(*advice, "best").spread->bandwidth, 45e9);
  EXPECT_EQ(advise_interleave(published(), {.mix = "1:1", .demand = {{90e9}}}).error().code,
            ErrorCode::exhausted);
}

// Little's law for the program: its stores are also read first, and written back.
TEST(InterleaveTest, LinesInFlightAreTheProgramsAndAStoreMovesTwo) {
  for (const char* mix : {"read", "2:1", "1:1", "write", "nt_write"}) {
    const auto advice = advise_interleave(published(), {.mix = mix, .lines = 40});
    const Spread& best = *find(*advice, "best").spread;
    const double program = best.bandwidth / advice->traffic.bus;
    EXPECT_NEAR(program * *best.latency_ns / 1e9, 40 * kLineBytes, 1) << mix;
  }
  const auto by_default = advise_interleave(published(), {.mix = "write"});
  EXPECT_DOUBLE_EQ(*by_default->load.lines, 2 * 12 * kLinesPerThread);
}

TEST(InterleaveTest, NoLoadGiven_UsesOneThreadPerCpu) {
  EXPECT_DOUBLE_EQ(*advise_interleave(published(), {})->load.lines, 12 * kLinesPerThread);
}

TEST(InterleaveTest, DataThatDoesNotFit_LimitsShares) {
  // Node 0 has 128 GiB: half of the data.
  const auto advice = advise_interleave(published(), {.lines = 20, .data = 256_GiB});
  EXPECT_NEAR(advice->nodes[0].share, 0.5, 1e-6);
  EXPECT_EQ(find(*advice, "node 0 only").spread, std::nullopt);
  EXPECT_EQ(find(*advice, "node 0 only").reason, "node 0 holds at most 50.0 % of the data");
  EXPECT_EQ(advise_interleave(published(), {.data = 4096_GiB}).error().code, ErrorCode::exhausted);
  const std::map<NodeId, Bytes> free = {{NodeId{0}, 8_GiB}, {NodeId{8}, 64_GiB}};
  const auto less = advise_interleave(published(), {.lines = 20, .data = 32_GiB, .free = free});
  EXPECT_NEAR(less->nodes[0].share, 0.25, 1e-6);
}

TEST(InterleaveTest, WeightsKeepWhatFits) {
  const Bytes room{static_cast<std::uint64_t>(49.2 * (1ULL << 30))};
  const auto advice =
      advise_interleave(published(), {.lines = 80, .data = 200_GiB, .free = {{NodeId{0}, room}}});
  EXPECT_LE(find(*advice, "weights").spread->share[0], 0.246);
  const Bytes other{(200_GiB).value - room.value};
  const auto full = advise_interleave(
      published(), {.lines = 80, .data = 200_GiB, .free = {{NodeId{0}, room}, {NodeId{8}, other}}});
  EXPECT_TRUE(std::ranges::any_of(
      full->warnings, [](const std::string& each) { return each.contains("GiB more on node"); }));
}

TEST(InterleaveTest, WeightsNearSaturation) {
  for (const double demand : {117e9, 117.2e9, 117.3e9, 117.37e9}) {
    const auto advice = advise_interleave(published(), {.demand = {{demand}}});
    ASSERT_TRUE(advice->weight_loss) << demand;
    EXPECT_LE(*advice->weight_loss, kWeightLoss) << demand;
  }
}

TEST(InterleaveTest, RefusesInWords) {
  const auto error = [&](const InterleaveRequest& request) {
    const auto advice = advise_interleave(published(), request);
    return advice ? "" : advice.error().message;
  };
  EXPECT_EQ(error({.cpu_node = NodeId{3}}),
            "nothing was measured from CPUs of node 3; there are curves from node 0, 7");
  EXPECT_EQ(error({.cpu_node = NodeId{7}, .mix = "2:1"}),
            "a spread takes two memories measured at the mix 2:1, or at mixes on both its sides, "
            "and node 0 has read; measure it: headrace measure loaded --out profile.json");
  EXPECT_EQ(error({.demand = {{1e9}}, .lines = 5}),
            "a demand or lines in flight (threads); give one of them");
  EXPECT_EQ(error({.lines = NAN}), "nan lines in flight are no load; give 0.001 to 1000000000");
  EXPECT_EQ(error({.lines = 1e308}),
            "1e+308 lines in flight are no load; give 0.001 to 1000000000");
  EXPECT_EQ(error({.demand = {{0.5}}}), "a demand of 0.5 B/s is none; give 1 to 1e+18");
  EXPECT_EQ(error({.free = {{NodeId{99}, 1_GiB}}}),
            "no node 99 on cxl-a1000; give one that it has");
  const auto bare = advise_interleave(*Profile::load("one-node"), {});
  EXPECT_EQ(bare.error().code, ErrorCode::absent);
  EXPECT_EQ(bare.error().message,
            "one-node has no rows of the experiment loaded, which the advice rests on; measure "
            "them: headrace measure loaded --out profile.json");
}

TEST(InterleaveTest, SingleMemory_IsRefused) {
  Profile one = published();
  std::erase_if(one.rows, [](const Row& row) {
    const auto* memory = row.number("memory_node");
    return memory != nullptr && *memory == 8;
  });
  EXPECT_EQ(advise_interleave(one, {}).error().message,
            "from CPUs of node 0 only 1 memory of this machine was measured under load, and a "
            "spread takes two; measure the others: headrace measure loaded --out profile.json");
}

// The published rows as if from CPUs of another node.
Profile seen_from(std::uint64_t node) {
  Profile profile = published();
  std::erase_if(profile.rows, [](const Row& row) {
    const auto* cpu = row.number("cpu_node");
    return cpu == nullptr || *cpu != 0;
  });
  for (Row& row : profile.rows) {
    for (auto& [name, value] : row.parameters) {
      if (name == "cpu_node" || name == "traffic_cpu_node") value = node;
    }
  }
  return profile;
}

TEST(InterleaveTest, RowsOfUnknownCpus_AreRefused) {
  const Profile strange = seen_from(50);
  for (const auto& asked : {std::optional<NodeId>{}, std::optional{NodeId{50}}}) {
    const auto advice = advise_interleave(strange, {.cpu_node = asked});
    EXPECT_EQ(advice.error().code, ErrorCode::absent);
    EXPECT_EQ(advice.error().message,
              "rows name CPUs of node 50, which the machine of this profile lacks; measure anew: "
              "headrace measure loaded --out profile.json");
  }
  Profile both = published();
  both.rows.insert(both.rows.end(), strange.rows.begin(), strange.rows.end());
  EXPECT_EQ(advise_interleave(both, {})->cpu_node, NodeId{0});
  EXPECT_EQ(advise_interleave(seen_from((1ULL << 32)), {}).error().code, ErrorCode::absent);
}

std::optional<NodeId> cpu_node_of_default(const Profile& profile) {
  const auto advice = advise_interleave(profile, {});
  if (!advice) return std::nullopt;
  return advice->cpu_node;
}

TEST(InterleaveTest, NodeWithoutCpus_IsTheObserverOnlyIfNamed) {
  Profile both = seen_from(8);  // memory node only
  EXPECT_EQ(advise_interleave(both, {}).error().message,
            "node 8 has no CPUs known; say how much is asked");
  EXPECT_TRUE(advise_interleave(both, {.lines = 100}));
  const Profile& more = published();
  both.rows.insert(both.rows.begin(), more.rows.begin(), more.rows.end());
  std::erase_if(both.rows, [](const Row& row) {
    const auto *cpu = row.number("cpu_node"), *memory = row.number("memory_node");
    return cpu != nullptr && *cpu == 0 && memory != nullptr && *memory == 0;
  });
  EXPECT_EQ(cpu_node_of_default(both), NodeId{7}) << "of those that have CPUs";
}

TEST(InterleaveTest, MissingKnowledge_IsAWarning) {
  const auto warnings = advise_interleave(published(), {.mix = "3:1"})->warnings;
  const auto said = [&](std::string_view part) {
    return std::ranges::any_of(warnings, [&](const auto& each) { return each.contains(part); });
  };
  EXPECT_TRUE(said("each memory was loaded alone"));
  EXPECT_TRUE(said("node 1, 2, 3, 4, 5, 6, 7"));
  EXPECT_TRUE(said("node 8: interpolated between the mixes read and 2:1"));
}

TEST(InterleaveTest, PointsThatAreNoisyOrFew_AreAWarning) {
  for (const char* const flag : {"noisy", "few"}) {
    Profile profile = published();
    for (Row& row : profile.rows) {
      if (row.word("mix") == "2:1" && *row.number("memory_node") == 8) row.add_flag(flag);
    }
    const auto said = [&](const char* mix) {
      const auto advice = advise_interleave(profile, {.mix = mix});
      std::string all;
      for (const auto& each : advice->warnings) all += each;
      return all;
    };
    const std::string part = flag == std::string("noisy")
                                 ? "node 8: measured while something else ran"
                                 : "node 8: points of one or two mappings";
    EXPECT_TRUE(said("2:1").contains(part)) << said("2:1");
    EXPECT_TRUE(said("3:1").contains(part)) << "interpolated: " << said("3:1");
    EXPECT_FALSE(said("read").contains(part));
  }
}

TEST(InterleaveTest, AMemoryWithoutTheMixIsNotCalledUnmeasured) {
  Profile three = published();
  for (Row row : published().rows) {
    const auto* memory = row.number("memory_node");
    if (row.experiment != "loaded_least" || row.word("mix") != "read" || *memory != 8) continue;
    for (auto& [name, value] : row.parameters) {
      if (name == "memory_node") value = std::uint64_t{9};
    }
    three.rows.push_back(std::move(row));
  }
  const auto warnings = advise_interleave(three, {.mix = "1:1"})->warnings;
  const auto said = [&](std::string_view part) {
    return std::ranges::count_if(warnings, [&](const auto& each) { return each.contains(part); });
  };
  EXPECT_EQ(said("left out for want of the mix 1:1: node 9 has read"), 1);
  EXPECT_EQ(said("node 1, 2, 3, 4, 5, 6, 7"), 1);
  EXPECT_EQ(said("7, 9"), 0);
}

// Two DRAM nodes, HBM and CXL near one CPU node.
TEST(InterleaveTest, AnyNumberOfTiers) {
  const std::vector tiers = {queue_of(0, 100, 70e9), queue_of(1, 110, 70e9),
                             queue_of(8, 130, 140e9), queue_of(16, 250, 50e9)};
  EXPECT_DOUBLE_EQ(best_spread(tiers, {.lines = 3})->share[0], 1);
  const auto middle = best_spread(tiers, {.demand = 90e9});
  EXPECT_GT(middle->share[0], 0);
  EXPECT_GT(middle->share[1], 0);
  EXPECT_GT(middle->share[2], middle->share[0]);
  EXPECT_LT(middle->share[3], 0.005);
  const auto all = best_spread(tiers, {.lines = 1e6});
  EXPECT_NEAR(all->bandwidth, 330e9 * 0.98, 1e8);
  EXPECT_NEAR(all->share[3], 50.0 / 330, 0.001);
}

}  // namespace
}  // namespace headrace
