// SPDX-License-Identifier: Apache-2.0
#include "model/queue.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

const Curve kMeasured{{{0.5, 10}, {0.9, 40}, {1, 300}}};

TEST(QueueTest, UtilisationRisesFromZeroToItsLimit) {
  for (const Curve& queue : {Curve{}, kMeasured}) {
    EXPECT_EQ(utilisation(queue, 0).value, 0);
    double before = 0;
    for (double delay = 0.1; delay < 1e5; delay *= 1.3) {
      const double now = utilisation(queue, delay).value;
      EXPECT_GT(now, before);
      EXPECT_LE(now, kMostUtilisation);
      before = now;
    }
    EXPECT_NEAR(before, kMostUtilisation, 1e-3);
  }
}

TEST(QueueTest, PointsOfACurve_AreOnIt) {
  EXPECT_DOUBLE_EQ(utilisation(kMeasured, 10).value, 0.5);
  EXPECT_DOUBLE_EQ(utilisation(kMeasured, 25).value, 0.7);
  EXPECT_DOUBLE_EQ(utilisation(kMeasured, 300).value, 1);
}

TEST(QueueTest, SlopeIsTheDerivative) {
  for (const Curve& queue : {Curve{}, kMeasured}) {
    for (const double delay : {-3.0, 5.0, 20.0, 100.0, 1000.0}) {
      const double step = 1e-4;
      const double derivative =
          (utilisation(queue, delay + step).value - utilisation(queue, delay - step).value) /
          (2 * step);
      EXPECT_NEAR(utilisation(queue, delay).slope, derivative, 1e-6) << delay;
    }
  }
}

}  // namespace
}  // namespace headrace
