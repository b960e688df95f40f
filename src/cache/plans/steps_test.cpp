// SPDX-License-Identifier: Apache-2.0
#include "cache/plans/steps.h"

#include <gtest/gtest.h>

#include "headrace/random.h"
#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

// All numbers from the first one that is left on, one by one.
template <class Is>
std::optional<std::uint64_t> first(const Steps& steps, const Strided& all, const Is& is) {
  for (std::uint64_t i = steps.number(); i < all.count; ++i) {
    const Range range{all.object->id(), all.offset + i * all.stride, all.length.value};
    if (i % 3 != 1 && is(range)) return i;
  }
  return std::nullopt;
}

// Two thirds of the extents belong to the shard.
TEST(StepsTest, Search_FindsTheFirstExtent) {
  const test::Source source(4096);
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    const Strided all{.object = &source.object(),
                      .offset = random.below(40),
                      .length = Bytes{1 + random.below(20)},
                      .stride = 1 + random.below(30),
                      .count = 1 + random.below(30)};
    Steps steps(all, [](std::uint64_t at) { return at % 3 == 1 ? at + 1 : at; }, 1);
    steps.go_to(random.below(all.count));
    const Range range{source.object().id(), random.below(900), 1 + random.below(60)};
    const auto inside = first(steps, all, [&](const Range& one) { return range.contains(one); });
    const auto uses = first(
        steps, all, [&](const Range& one) { return range.contains(one) || one.contains(range); });
    const auto overlaps = first(steps, all, [&](const Range& one) { return range.overlaps(one); });
    ASSERT_EQ(steps.find_inside(range), inside) << round;
    ASSERT_EQ(steps.find(range), uses) << round;
    ASSERT_TRUE(!overlaps || steps.overlap(range)) << round;
  }
}

TEST(StepsTest, ManyExtents_CostNothing) {
  const test::Source source(64);
  constexpr std::uint64_t kMany = 1'000'000'000;
  const Strided all{.object = &source.object(), .length = 8_B, .stride = 4096, .count = kMany};
  const Steps steps(all, nullptr, 1);
  EXPECT_EQ(steps.find({source.object().id(), (kMany - 1) * 4096, 8}), kMany - 1);
  EXPECT_EQ(steps.find({source.object().id(), kMany * 4096, 8}), std::nullopt);
  EXPECT_EQ(steps.bounds().length, (kMany - 1) * 4096 + 8);
}

}  // namespace
}  // namespace headrace
