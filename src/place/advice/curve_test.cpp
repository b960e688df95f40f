// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "place/advice/advice_testing.h"

namespace headrace {
namespace {

TEST(CurveTest, IsTheLowerEnvelopeWhateverTheOrder) {
  const auto curve = curve_of({{30, 400}, {10, 100}, {20, 500}, {40, 450}, {10, 90}});
  ASSERT_EQ(curve.points().size(), 4u);
  EXPECT_DOUBLE_EQ(curve.latency(20), 400) << "30 was reached at 400 ns";
  EXPECT_DOUBLE_EQ(curve.idle_ns(), 90);
  EXPECT_DOUBLE_EQ(curve.best(), 40);
}

TEST(CurveTest, IsALineBetweenPointsAndConstantOutside) {
  const auto curve = curve_of({{10, 100}, {20, 200}});
  EXPECT_DOUBLE_EQ(curve.latency(0), 100);
  EXPECT_DOUBLE_EQ(curve.latency(15), 150);
  EXPECT_DOUBLE_EQ(curve.latency(1000), 200);
  EXPECT_DOUBLE_EQ(curve.reached(99), 0);
  EXPECT_DOUBLE_EQ(curve.reached(150), 15);
  EXPECT_DOUBLE_EQ(curve.reached(1e9), 20);
}

TEST(CurveTest, InvalidPoints_AreRefused) {
  EXPECT_EQ(LoadedCurve::of({}).error().code, ErrorCode::invalid);
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL, 1e308, 1e-308}) {
    EXPECT_EQ(LoadedCurve::of({{bad, 1}}).error().code, ErrorCode::invalid);
    EXPECT_EQ(LoadedCurve::of({{1, bad}}).error().code, ErrorCode::invalid);
  }
}

// A queue with a sharp knee, in `points` points.
LoadedCurve queue_by(int points) {
  std::vector<LoadedPoint> all;
  for (int i = 1; i <= points; ++i) {
    const double used = 0.999 * i / points;
    all.push_back({used * 60e9, 100 / (1 - used)});
  }
  return curve_of(all);
}

TEST(CurveTest, ManyPoints_AreThinnedWithoutLoss) {
  const LoadedCurve many = queue_by(20000);
  EXPECT_LE(many.points().size(), kMostPoints);
  EXPECT_GE(many.points().size(), kMostPoints / 2);
  EXPECT_DOUBLE_EQ(many.best(), 0.999 * 60e9);
  EXPECT_DOUBLE_EQ(many.points().back().latency_ns, 100 / (1 - 0.999));
  EXPECT_NEAR(many.idle_ns(), 100, 0.01);
  for (int part = 1; part <= 999; ++part) {
    const double used = part / 1000.0;
    EXPECT_NEAR(many.latency(used * 60e9), 100 / (1 - used), 100 / (1 - used) * 0.01) << part;
  }
  EXPECT_EQ(queue_by(kMostPoints).points().size(), kMostPoints) << "this number of points is kept";
}

TEST(CurveTest, ManyPointsOfOneLatency_AreThinned) {
  std::vector<LoadedPoint> flat;
  for (int i = 1; i <= 5000; ++i) flat.push_back({i * 1e6, 100});
  EXPECT_LE(curve_of(flat).points().size(), kMostPoints);
}

TEST(CurveTest, NeverFallsAndIsItsOwnInverse) {
  EXPECT_TRUE(rc::check([] {
    const Tier tier = any_tier(0);
    double before = 0;
    for (int i = 0; i <= 100; ++i) {
      const double bandwidth = tier.curve.best() * i / 100;
      const double latency = tier.curve.latency(bandwidth);
      RC_ASSERT(latency >= before);
      RC_ASSERT(tier.curve.reached(latency) >= bandwidth * (1 - 1e-9));
      before = latency;
    }
  }));
}

}  // namespace
}  // namespace headrace
