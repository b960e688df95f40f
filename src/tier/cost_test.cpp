// SPDX-License-Identifier: Apache-2.0
#include "tier/cost.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

// A look takes 7 ns per page; the first access to a page after it 30 ns.
class Looking final : public HotnessSource {
 public:
  explicit Looking(ManualClock& clock) : HotnessSource(HotnessKind::written), clock_(clock) {}

  Result<Tracking> track(std::span<const std::byte>) override {
    clock_.advance(std::chrono::milliseconds{1});
    first = true;
    return Tracking{};
  }
  Status untrack(std::span<const std::byte>) override { return {}; }
  Result<HotnessSample> look() override {
    clock_.advance(Nanoseconds{7 * 100});
    first = true;
    return HotnessSample{};
  }

  bool first = false;

 private:
  ManualClock& clock_;
};

TEST(HotnessCost, IsTheTimeOfLooksAndOfAccessesBeforeAndAfterThem) {
  ManualClock clock;
  Looking source(clock);
  const std::vector<std::byte> memory(100);
  int writes = 0;
  const auto write = [&] {
    // The very first write allocates the pages.
    const int ns = ++writes == 1 ? 1000 : source.first ? 30 : 5;
    clock.advance(Nanoseconds{ns * 100});
    source.first = false;
  };
  const auto cost = timed_cost(source, memory, 100, write, clock);
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->pages, 100U);
  EXPECT_DOUBLE_EQ(cost->access_ns, 5);
  EXPECT_DOUBLE_EQ(cost->first_access_ns, 30);
  EXPECT_DOUBLE_EQ(cost->look_ns_per_page, 7);
}

TEST(HotnessCost, IsMeasuredOfEachSourceThatIsThere) {
  for (const HotnessKind kind : kHotnessKinds) {
    const auto cost = measure_hotness_cost(kind, 1_MiB);
    const auto there = open_hotness(kind);
    ASSERT_EQ(cost.has_value(), there.has_value());
    if (!cost) continue;
    EXPECT_EQ(cost->pages, 256u);
    EXPECT_GT(cost->look_ns_per_page, 0);
    EXPECT_GT(cost->access_ns, 0);
    EXPECT_GT(cost->first_access_ns, 0);
  }
}

TEST(HotnessCost, IsThatOfSomeWholePages) {
  EXPECT_EQ(measure_hotness_cost(HotnessKind::written, {0}).error().code, ErrorCode::invalid);
  EXPECT_EQ(measure_hotness_cost(HotnessKind::written, {5000}).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
