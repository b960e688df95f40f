#include "backend/storage/plan.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace headrace::storage {
namespace {

bool check(const char* what, const std::function<void()>& property) {
  return rc::check(what, property);
}

Range any_range() {
  Range range;
  range.write = *rc::gen::arbitrary<bool>();
  range.begin = *rc::gen::inRange<std::uint64_t>(0, 3 << 20);
  const bool small = *rc::gen::arbitrary<bool>();
  range.end = range.begin + *rc::gen::inRange<std::uint64_t>(1, small ? 9000 : 3 << 20);
  range.address = *rc::gen::inRange<std::uintptr_t>(1 << 20, 2 << 20);
  // Half of the time memory and file are aligned to each other.
  if (*rc::gen::arbitrary<bool>()) range.address += (range.begin - range.address) % 4096;
  if (*rc::gen::element(0, 1, 2, 3) != 0) {
    range.direct = DirectAlignment{.memory = *rc::gen::element(4U, 512U, 4096U),
                                   .offset = *rc::gen::element(512U, 4096U, 16384U)};
  }
  range.request_bytes = *rc::gen::element<std::uint64_t>(64 << 10, 512 << 10, 1 << 20);
  return range;
}

std::vector<Step> all_steps(const Range& range) {
  std::vector<Step> steps;
  for (std::uint64_t next = range.begin; next < range.end; next = steps.back().to) {
    steps.push_back(next_step(range, next));
    RC_ASSERT(steps.back().from == next);
    RC_ASSERT(steps.back().to > next);
    RC_ASSERT(steps.back().to <= range.end);
  }
  return steps;
}

TEST(Plan, StepsCoverTheRangeWithoutOverlap) {
  EXPECT_TRUE(check("covers", [] { all_steps(any_range()); }));
}

TEST(Plan, DirectStepsKeepTheAlignmentOfTheDevice) {
  EXPECT_TRUE(check("aligned", [] {
    const Range range = any_range();
    for (const Step& step : all_steps(range)) {
      RC_ASSERT(step.offset <= step.from);
      RC_ASSERT(step.offset + step.bytes >= step.to);
      if (!step.bounce) {
        RC_ASSERT(step.offset == step.from && step.offset + step.bytes == step.to);
      }
      RC_ASSERT(step.bytes <= (step.bounce ? kBounceBytes : range.request_bytes));
      if (!step.direct) continue;
      RC_ASSERT(step.offset % range.direct->offset == 0U);
      RC_ASSERT(step.bytes % range.direct->offset == 0U);
      if (!step.bounce) RC_ASSERT(range.address_of(step.offset) % range.direct->memory == 0U);
    }
  }));
}

TEST(Plan, WritesTouchNothingOutsideAndShareNoPageBetweenCacheAndDevice) {
  EXPECT_TRUE(check("writes", [] {
    Range range = any_range();
    range.write = true;
    std::set<std::uint64_t> direct_pages;
    std::set<std::uint64_t> cached_pages;
    for (const Step& step : all_steps(range)) {
      RC_ASSERT(step.offset >= range.begin && step.offset + step.bytes <= range.end);
      auto& pages = step.direct ? direct_pages : cached_pages;
      for (auto p = step.offset / range.page; p <= (step.to - 1) / range.page; ++p) pages.insert(p);
    }
    for (const std::uint64_t page : cached_pages) RC_ASSERT(!direct_pages.contains(page));
  }));
}

TEST(Plan, AlignedPiecesGoStraight) {
  const Range range{.begin = 1 << 20,
                    .end = 3 << 20,
                    .address = 7 << 20,
                    .direct = DirectAlignment{.memory = 512, .offset = 512}};
  const Step expected{.offset = 1 << 20,
                      .bytes = 512 << 10,
                      .from = 1 << 20,
                      .to = (1 << 20) + (512 << 10),
                      .direct = true};
  EXPECT_EQ(next_step(range, 1 << 20), expected);
}

TEST(Plan, SmallOddReadsAreOneRequest) {
  const Range range{.begin = 1000,
                    .end = 9000,
                    .address = 4096 + 1000,
                    .direct = DirectAlignment{.memory = 512, .offset = 512}};
  const Step expected{
      .offset = 512, .bytes = 8704, .from = 1000, .to = 9000, .direct = true, .bounce = true};
  EXPECT_EQ(next_step(range, 1000), expected);
}

}  // namespace
}  // namespace headrace::storage
