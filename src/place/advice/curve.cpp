#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "headrace/advice/interleave.h"

namespace headrace {

Result<LoadedCurve> LoadedCurve::of(std::vector<LoadedPoint> points) {
  const auto known = [](double value) { return std::isfinite(value) && value > 0; };
  if (points.empty()) return fail(ErrorCode::invalid, "a curve has no point; give one or more");
  for (const LoadedPoint& point : points) {
    if (known(point.bandwidth) && known(point.latency_ns)) continue;
    return fail(ErrorCode::invalid, "a point of {} B/s and {} ns; both are above 0",
                point.bandwidth, point.latency_ns);
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
