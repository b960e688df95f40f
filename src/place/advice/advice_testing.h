// SPDX-License-Identifier: Apache-2.0
// Tiers for the tests of advice.
#pragma once

#include <rapidcheck.h>

#include <utility>
#include <vector>

#include "headrace/advice/interleave.h"

namespace headrace {

inline LoadedCurve curve_of(std::vector<LoadedPoint> points) {
  return *LoadedCurve::of(std::move(points));
}

inline Tier tier_of(unsigned node, std::vector<LoadedPoint> points, double most_share = 1) {
  return {NodeId{node}, curve_of(std::move(points)), most_share};
}

// A queue in front of a memory: latency idle / (1 - b / best) up to 98 % of best; b L(b) is convex.
inline Tier queue_of(unsigned node, double idle_ns, double best) {
  std::vector<LoadedPoint> points;
  for (int i = 1; i <= 200; ++i) {
    const double used = 0.98 * i / 200;
    points.push_back({used * best, idle_ns / (1 - used)});
  }
  return tier_of(node, points);
}

// Points like measured ones: arbitrary, noisy, in any order.
inline Tier any_tier(unsigned node) {
  std::vector<LoadedPoint> points;
  const int count = *rc::gen::inRange(1, 20);
  for (int i = 0; i < count; ++i) {
    points.push_back({*rc::gen::inRange(1, 100) * 1e9, *rc::gen::inRange(50, 2000) * 1.0});
  }
  return tier_of(node, points);
}

}  // namespace headrace
