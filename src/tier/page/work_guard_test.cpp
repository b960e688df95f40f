// SPDX-License-Identifier: Apache-2.0
#include "tier/page/work_guard.h"

#include <gtest/gtest.h>

#include <functional>

namespace headrace {
namespace {

using Verdict = WorkGuard::Verdict;

struct Outcome {
  double work = 0;
  unsigned moved = 0;  // calls
  unsigned undone = 0;
};

// A program that does rate(call, whether pages move) of work per second, reported once a second.
Outcome run(WorkGuard& guard, unsigned calls, const std::function<double(unsigned, bool)>& rate) {
  Outcome outcome;
  bool moving = false;
  for (unsigned call = 0; call < calls; ++call) {
    const Verdict verdict = guard.hear(static_cast<std::uint64_t>(outcome.work),
                                       std::chrono::seconds{static_cast<int>(call)});
    moving = verdict == Verdict::move;
    outcome.moved += moving ? 1 : 0;
    outcome.undone += verdict == Verdict::undo ? 1 : 0;
    outcome.work += rate(call, moving);
  }
  return outcome;
}

TEST(WorkGuard, MovesThatHarmCostLessThanTheShareInTheLongRun) {
  for (const double harmed : {900.0, 700.0, 300.0}) {
    WorkGuard guard(0.05);
    const Outcome outcome =
        run(guard, 4000, [&](unsigned, bool moving) { return moving ? harmed : 1000.0; });
    EXPECT_GE(outcome.work, 0.95 * 1000 * 4000) << harmed;
    EXPECT_GE(outcome.undone, 3u) << "it tries again";
  }
}

TEST(WorkGuard, MovesThatHelpOrCostLittleGoOn) {
  for (const double moved : {1300.0, 1000.0, 960.0}) {
    WorkGuard guard(0.05);
    const Outcome outcome =
        run(guard, 4000, [&](unsigned, bool moving) { return moving ? moved : 1000.0; });
    EXPECT_EQ(outcome.undone, 0u) << moved;
    EXPECT_GE(outcome.moved, 3900u) << moved;
  }
}

TEST(WorkGuard, AProgramThatSlowsDownByItselfRestsTwoSpansOnly) {
  WorkGuard guard(0.05);
  const Outcome outcome =
      run(guard, 400, [](unsigned call, bool) { return call < 100 ? 1000.0 : 500.0; });
  EXPECT_EQ(outcome.undone, 1u);
  EXPECT_EQ(outcome.moved, 400 - 3 * WorkGuard::kSpan);
}

TEST(WorkGuard, FindsHarmThatAFasterProgramHides) {
  WorkGuard guard(0.05);
  const Outcome outcome =
      run(guard, 4 * WorkGuard::kLongest * WorkGuard::kSpan, [](unsigned call, bool moving) {
        return call < 100 ? 1000.0 : moving ? 1500.0 : 2000.0;
      });
  EXPECT_GE(outcome.undone, 1u);
}

TEST(WorkGuard, BeginsAnewWhereWorkOrClockGoBack) {
  WorkGuard guard(0.05);
  for (int call = 0; call <= static_cast<int>(WorkGuard::kSpan); ++call) {
    guard.hear(1000 * static_cast<std::uint64_t>(call), std::chrono::seconds{call});
  }
  EXPECT_DOUBLE_EQ(guard.at_rest(), 1000);
  EXPECT_EQ(guard.hear(9000, std::chrono::seconds{9}), Verdict::move);
  EXPECT_EQ(guard.hear(10, std::chrono::seconds{10}), Verdict::rest) << "another program";
  EXPECT_EQ(guard.hear(20, std::chrono::seconds{1}), Verdict::rest);
  EXPECT_TRUE(guard.fresh());
}

TEST(WorkGuard, NoneWhereTheShareIsZero) {
  WorkGuard none(0);
  EXPECT_EQ(none.hear(0, {}), Verdict::move);
}

}  // namespace
}  // namespace headrace
