// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "headrace/advice/interleave.h"

namespace headrace {
namespace {

constexpr double kLeastBandwidth = 1, kLeastLatencyNs = 1e-3;

// Relative position of a point between the first and the last of a curve, 0 to 1. Half is bandwidth
// and half the logarithm of latency, so that thinning keeps the knee and the flat part.
double way(const LoadedPoint& point, const LoadedPoint& first, const LoadedPoint& last) {
  const double more = point.bandwidth - first.bandwidth, most = last.bandwidth - first.bandwidth;
  const double slower = std::log(last.latency_ns / first.latency_ns);
  const double used = most > 0 ? more / most : 1;
  if (slower <= 0) return used;
  return (used + std::log(point.latency_ns / first.latency_ns) / slower) / 2;
}

// The first point, and the last point of each step of the position. Rising points remain an
// envelope.
std::vector<LoadedPoint> thinned(std::span<const LoadedPoint> points) {
  constexpr double kSteps = kMostPoints - 2;
  std::vector<LoadedPoint> kept = {points.front()};
  const auto step = [&](const LoadedPoint& point) {
    return std::floor(way(point, points.front(), points.back()) * kSteps);
  };
  for (std::size_t i = 1; i < points.size(); ++i) {
    const bool ends = i + 1 == points.size() || step(points[i]) != step(points[i + 1]);
    if (ends) kept.push_back(points[i]);
  }
  return kept;
}

}  // namespace

Result<LoadedCurve> LoadedCurve::of(std::vector<LoadedPoint> points) {
  const auto in = [](double value, double least, double most) {
    return value >= least && value <= most;  // false for NaN
  };
  if (points.empty()) return fail(ErrorCode::invalid, "a curve has no point; give one or more");
  for (const LoadedPoint& point : points) {
    if (in(point.bandwidth, kLeastBandwidth, kMostBandwidth) &&
        in(point.latency_ns, kLeastLatencyNs, kMostLatencyNs)) {
      continue;
    }
    return fail(ErrorCode::invalid,
                "a point of {} B/s and {} ns is no measurement; give {} to {} B/s and {} to {} ns",
                point.bandwidth, point.latency_ns, kLeastBandwidth, kMostBandwidth, kLeastLatencyNs,
                kMostLatencyNs);
  }
  std::ranges::sort(points, [](const LoadedPoint& a, const LoadedPoint& b) {
    return a.bandwidth != b.bandwidth ? a.bandwidth > b.bandwidth : a.latency_ns < b.latency_ns;
  });
  LoadedCurve curve;
  double least = points.front().latency_ns;
  for (const LoadedPoint& point : points) {  // from the highest bandwidth down
    least = std::min(least, point.latency_ns);
    const bool same = !curve.points_.empty() && curve.points_.back().bandwidth == point.bandwidth;
    if (!same) curve.points_.push_back({point.bandwidth, least});
  }
  std::ranges::reverse(curve.points_);
  if (curve.points_.size() > kMostPoints) curve.points_ = thinned(curve.points_);
  return curve;
}

double LoadedCurve::latency(double bandwidth) const {
  const auto above = std::ranges::lower_bound(points_, bandwidth, {}, &LoadedPoint::bandwidth);
  if (above == points_.begin()) return above->latency_ns;
  if (above == points_.end()) return points_.back().latency_ns;
  const LoadedPoint& below = *std::prev(above);
  const double part = (bandwidth - below.bandwidth) / (above->bandwidth - below.bandwidth);
  return below.latency_ns + part * (above->latency_ns - below.latency_ns);
}

double LoadedCurve::reached(double latency_ns) const {
  const auto above = std::ranges::upper_bound(points_, latency_ns, {}, &LoadedPoint::latency_ns);
  if (above == points_.begin()) return 0;
  if (above == points_.end()) return points_.back().bandwidth;
  const LoadedPoint& below = *std::prev(above);
  const double part = (latency_ns - below.latency_ns) / (above->latency_ns - below.latency_ns);
  return below.bandwidth + part * (above->bandwidth - below.bandwidth);
}

}  // namespace headrace
