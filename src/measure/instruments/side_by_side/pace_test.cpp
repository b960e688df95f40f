// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/fail.h"

namespace headrace::instruments {
namespace {

// Traffic whose threads together reach `alone` without a limit, on a memory that gives `most`:
// saturated until the pauses use up the reserve.
struct Traffic {
  double alone;
  double most;
  int runs = 0;

  double rate(Nanoseconds pause) const {
    return std::min(most, alone / (1 + static_cast<double>(pause.count()) / 30));
  }
  Pace::Rate run() {
    return [this](Nanoseconds pause) -> Result<double> {
      ++runs;
      return rate(pause);
    };
  }
};

TEST(Pace, ReachesTheShareHoweverLongTheTrafficSaturates) {
  for (const double headroom : {0.8, 1.0, 4.0, 60.0}) {
    Traffic traffic{.alone = headroom * 1e9, .most = 1e9};
    const double most = traffic.rate(Nanoseconds{0});
    Pace pace;
    const auto shares = {1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.01};
    for (const double share : shares) {
      const auto pause = pace.for_share(share, traffic.run());
      ASSERT_TRUE(pause.has_value());
      EXPECT_NEAR(traffic.rate(*pause) / most, share, 0.06) << headroom;
    }
    EXPECT_LE(traffic.runs, 60) << "what one share has shown is known to the next";
    const int runs = traffic.runs;
    for (const double share : shares) ASSERT_TRUE(pace.for_share(share, traffic.run()).has_value());
    EXPECT_LE(traffic.runs, runs + 12);
  }
}

TEST(Pace, EndsWhereTheBandwidthIsNoiseOrNeverFalls) {
  Pace pace;
  int runs = 0;
  const auto noise = [&](Nanoseconds) -> Result<double> { return 1e9 * (++runs * 7 % 10 + 1); };
  for (const double share : {0.9, 0.5, 0.1}) {
    const auto pause = pace.for_share(share, noise);
    ASSERT_TRUE(pause.has_value());
    EXPECT_LE(*pause, Pace::kLongest);
  }
  EXPECT_LE(runs, 200);
  Pace flat;
  EXPECT_EQ(flat.for_share(0.5, [](Nanoseconds) -> Result<double> { return 1e9; }), Pace::kLongest);
  EXPECT_EQ(flat.for_share(1, [](Nanoseconds) -> Result<double> { return 1e9; }), Nanoseconds{0});
}

TEST(Pace, HandsUpWhatFails) {
  Pace pace;
  const auto found = pace.for_share(
      0.5, [](Nanoseconds) -> Result<double> { return fail(ErrorCode::timed_out, "stood still"); });
  EXPECT_EQ(found.error().code, ErrorCode::timed_out);
}

}  // namespace
}  // namespace headrace::instruments
