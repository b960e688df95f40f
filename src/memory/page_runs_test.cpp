// SPDX-License-Identifier: Apache-2.0
#include "memory/page_runs.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>

namespace headrace {
namespace {

std::vector<NodeWeight> weights(const std::vector<unsigned>& values) {
  std::vector<NodeWeight> nodes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    nodes.push_back({NodeId{static_cast<std::uint32_t>(i)}, values[i]});
  }
  return nodes;
}

std::vector<NodeWeight> some_weights() {
  return weights(*rc::gen::nonEmpty(
      rc::gen::resize(8, rc::gen::container<std::vector<unsigned>>(rc::gen::inRange(1U, 10U)))));
}

// The naive model: page by page.
std::vector<std::size_t> naive(std::uint64_t pages, std::uint64_t pages_per_unit,
                               const std::vector<NodeWeight>& nodes) {
  std::vector<std::size_t> owner;
  while (owner.size() < pages) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      owner.insert(owner.end(), nodes[n].weight * pages_per_unit, n);
    }
  }
  owner.resize(pages);
  return owner;
}

TEST(PlanRuns, ThreeToOneIsThreePagesThenOne) {
  EXPECT_EQ(
      cut_into_runs(24_KiB, 4_KiB, weights({3, 1})),
      (std::vector<PageRun>{{0, 12 << 10, 0}, {12 << 10, 4 << 10, 1}, {16 << 10, 8 << 10, 0}}));
}

TEST(PlanRuns, DealEveryPageAsTheNaiveWayDoes) {
  EXPECT_TRUE(rc::check("every page has the owner of the naive deal", [] {
    const auto nodes = some_weights();
    const auto pages = *rc::gen::inRange<std::uint64_t>(1, 3000);
    const std::uint64_t per_unit = std::uint64_t{1} << *rc::gen::inRange(0, 4);
    const auto runs = cut_into_runs(4_KiB * pages, 4_KiB * per_unit, nodes);
    const auto owner = naive(pages, per_unit, nodes);
    std::uint64_t page = 0;
    for (const PageRun& run : runs) {
      RC_ASSERT(run.offset == page * 4096);
      RC_ASSERT(run.length > 0 && run.length % 4096 == 0);
      for (std::uint64_t end = page + run.length / 4096; page < end; ++page) {
        RC_ASSERT(owner[page] == run.node);
      }
    }
    RC_ASSERT(page == pages);
    const auto bytes = bytes_by_node(runs, nodes.size());
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      RC_ASSERT(bytes[n] == 4_KiB * static_cast<std::uint64_t>(std::ranges::count(owner, n)));
    }
  }));
}

TEST(ChooseUnit, IsThePageWhileTheRunsAreFew) {
  EXPECT_EQ(choose_unit(4_MiB, 4_KiB, weights({3, 1})), 4_KiB) << "256 turns, 512 runs";
  EXPECT_EQ(choose_unit(4_MiB + 4_KiB, 4_KiB, weights({3, 1})), 8_KiB) << "one turn more";
  EXPECT_EQ(choose_unit(1_GiB, 2_MiB, weights({3, 1})), 2_MiB);
}

TEST(ChooseUnit, IsTheSmallestThatKeepsToTheBound) {
  EXPECT_TRUE(rc::check("the bound holds, and would not with half the unit", [] {
    const auto nodes = some_weights();
    const Bytes mapped = 4_KiB * *rc::gen::inRange<std::uint64_t>(1, 1 << 20);
    const auto bound = *rc::gen::inRange<std::uint64_t>(16, 600);
    const Bytes unit = choose_unit(mapped, 4_KiB, nodes, bound);
    RC_ASSERT(unit.value % 4096 == 0);
    RC_ASSERT(((unit / 4_KiB) & (unit / 4_KiB - 1)) == 0U);
    RC_ASSERT(cut_into_runs(mapped, unit, nodes).size() <= bound);
    if (unit > 4_KiB) {
      RC_ASSERT(((mapped - 1_B) / turn(nodes, unit / 2) + 1) * nodes.size() > bound);
    }
  }));
}

TEST(ChooseUnit, EndsAlsoForAbsurdWeightsAndSizes) {
  constexpr auto kMax = std::numeric_limits<unsigned>::max();
  const auto nodes = weights({kMax, kMax, 1});
  EXPECT_EQ(choose_unit(Bytes{std::uint64_t{1} << 56}, 1_GiB, nodes), 1_GiB);
  EXPECT_EQ(turn(nodes, Bytes{std::uint64_t{1} << 56}).value,
            std::numeric_limits<std::uint64_t>::max());
  const auto runs = cut_into_runs(8_KiB, 4_KiB, nodes);
  EXPECT_EQ(runs, (std::vector<PageRun>{{0, 8192, 0}}));
}

TEST(DistributedShares, BoundWhatANodeGetsFromAnyStart) {
  EXPECT_TRUE(rc::check("no start gives a node more, and some start as much", [] {
    const auto units = *rc::gen::inRange<std::uint64_t>(1, 100);
    const auto nodes = some_weights();
    const auto turn_of = naive(turn(nodes, 1_B).value, 1, nodes);
    std::vector<std::uint64_t> most(nodes.size());
    for (std::size_t start = 0; start < turn_of.size(); ++start) {
      std::vector<std::uint64_t> got(nodes.size());
      for (std::uint64_t unit = 0; unit < units; ++unit) {
        ++got[turn_of[(start + unit) % turn_of.size()]];
      }
      for (std::size_t i = 0; i < got.size(); ++i) most[i] = std::max(most[i], got[i]);
    }
    const auto shares = distributed_shares(2_MiB * units, 2_MiB, nodes);
    for (std::size_t i = 0; i < most.size(); ++i) RC_ASSERT(shares[i] == 2_MiB * most[i]);
  }));
}

TEST(SplitByRoom, FillsTheFirstInWholeTurnsThenTheOthersInOrder) {
  const auto nodes = weights({3, 1});
  const std::vector<Bytes> space = {40_KiB, 40_KiB};  // three turns of 16 KiB fill the first node
  const std::vector<Bytes> others = {8_KiB, 100_KiB};
  const auto split = split_by_space(80_KiB, 4_KiB, nodes, space, others);
  ASSERT_TRUE(split);
  // The second node alone then takes another 28 KiB.
  EXPECT_EQ(*split, (std::vector<Stage>{{{0, 1}, 48_KiB}, {{1}, 28_KiB}, {{2}, 4_KiB}}));
  const auto runs = cut_into_runs(*split, 4_KiB, nodes);
  ASSERT_EQ(runs.size(), 8U);
  EXPECT_EQ(runs[6], (PageRun{48 << 10, 28 << 10, 1}));
  EXPECT_EQ(runs[7], (PageRun{76 << 10, 4 << 10, 2}));
  EXPECT_TRUE(split_by_space(184_KiB, 4_KiB, nodes, space, others));
  EXPECT_EQ(split_by_space(185_KiB, 4_KiB, nodes, space, others), std::nullopt);
}

TEST(SplitByRoom, AFullNodeDoesNotKeepTheOthersFromBeingUsed) {
  const auto nodes = weights({1, 2, 1});
  const std::vector<Bytes> space = {0_KiB, 64_KiB, 1_MiB};
  const std::vector<Bytes> others = {1_MiB};
  EXPECT_EQ(split_by_space(48_KiB, 4_KiB, nodes, space, others),
            (std::vector<Stage>{{{1, 2}, 48_KiB}}));
  EXPECT_EQ(split_by_space(1120_KiB, 4_KiB, nodes, space, others),
            (std::vector<Stage>{{{1, 2}, 96_KiB}, {{2}, 992_KiB}, {{3}, 32_KiB}}));
}

TEST(SplitByRoom, NeverTakesMoreThanThereIs) {
  EXPECT_TRUE(rc::check("all bytes once, in order, none beyond the room", [] {
    const auto nodes = some_weights();
    const auto pages = *rc::gen::inRange<std::uint64_t>(1, 400);
    const auto some_space = [](std::size_t count) {
      std::vector<Bytes> space;
      for (std::size_t i = 0; i < count; ++i) {
        space.push_back(4_KiB * *rc::gen::inRange<std::uint64_t>(0, 120));
      }
      return space;
    };
    const auto space = some_space(nodes.size());
    const auto others = some_space(*rc::gen::inRange<std::size_t>(0, 5));
    const auto split = split_by_space(4_KiB * pages, 4_KiB, nodes, space, others);
    if (!split) return;
    const auto runs = cut_into_runs(*split, 4_KiB, nodes);
    std::uint64_t at = 0;
    for (const PageRun& run : runs) {
      RC_ASSERT(run.offset == at && run.length > 0);
      at += run.length;
    }
    RC_ASSERT(at == 4096 * pages);
    const auto bytes = bytes_by_node(runs, nodes.size() + others.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) RC_ASSERT(bytes[i] <= space[i]);
    for (std::size_t i = 0; i < others.size(); ++i) {
      RC_ASSERT(bytes[nodes.size() + i] <= others[i]);
      if (bytes[nodes.size() + i] == 0_B) continue;
      for (std::size_t node = 0; node < nodes.size(); ++node) {
        RC_ASSERT(space[node] - bytes[node] < 4_KiB * nodes[node].weight);
      }
      if (i + 1 < others.size() && bytes[nodes.size() + i] < others[i]) {
        RC_ASSERT(bytes[nodes.size() + i + 1] == 0_B);
      }
    }
  }));
}

TEST(SameWeights, AreThoseOfTheTable) {
  const auto table = weights({3, 1, 5});
  EXPECT_TRUE(same_weights(std::span(table).first(2), table));
  EXPECT_FALSE(same_weights(weights({3, 2}), table));
  EXPECT_FALSE(same_weights(weights({3, 1}), {}));
}

}  // namespace
}  // namespace headrace
