// SPDX-License-Identifier: Apache-2.0
#include "model/queue.h"

#include <algorithm>

namespace headrace {
namespace {

Utilisation default_shape(double queue_ns) {
  constexpr double kFirstSlope = kMostUtilisation * 3 / kQueueScaleNs;
  if (queue_ns < 0) return {.value = kFirstSlope * queue_ns, .slope = kFirstSlope};
  const double x = 1 / (1 + queue_ns / kQueueScaleNs);
  const double cube = x * x * x;
  return {.value = kMostUtilisation * (1 - cube),
          .slope = kMostUtilisation * 3 * cube * x / kQueueScaleNs};
}

}  // namespace

Utilisation utilisation(const Curve& queue, double queue_ns) {
  if (queue.points.empty()) return default_shape(queue_ns);
  double u0 = 0;
  double q0 = 0;
  for (const auto& [u, q] : queue.points) {
    if (queue_ns < q) {
      const double slope = (u - u0) / (q - q0);
      return {.value = u0 + slope * (queue_ns - q0), .slope = slope};
    }
    u0 = u;
    q0 = q;
  }
  // Beyond the last point: the tail of a queue, which needs a delay without bound for the rest.
  const double rest = std::max(kMostUtilisation, u0 + 0.01) - u0;
  return {.value = u0 + rest * (1 - q0 / queue_ns), .slope = rest * q0 / (queue_ns * queue_ns)};
}

}  // namespace headrace
