// SPDX-License-Identifier: Apache-2.0
// The relation of utilisation and added latency at a ceiling. Thread-safe; pure functions.
//
// Utilisation u is load / bandwidth. It grows with the queue delay q from 0 to kMostUtilisation,
// which is a little above 1, since `bandwidth` is what a full load reaches, with a finite number of
// requests in flight.
#pragma once

#include "model/ceilings.h"

namespace headrace {

// The default shape, u = kMostUtilisation * (1 - (1 + q / kQueueScaleNs)^-3), is fitted to the Mess
// curves of eight systems (bsc-mem/Mess-Results 16ab1d60) by benchmarks/studies/fit_queue_shape.py.
// docs/results/2026-11-28-queue-shape.md has its errors.
inline constexpr double kMostUtilisation = 1.02;
inline constexpr double kQueueScaleNs = 80;
// Factors of kQueueScaleNs for the ends of intervals: single systems want 45 to 144 ns.
inline constexpr double kQueueScaleLow = 0.55;
inline constexpr double kQueueScaleHigh = 1.8;

// Utilisation and its derivative.
struct Utilisation {
  double value = 0;
  double slope = 0;  // per ns
};

// The utilisation at which a ceiling adds `queue_ns`. `queue`: of the ceiling, or empty for the
// default shape. Below 0, where no solution is, the line goes on straight.
Utilisation utilisation(const Curve& queue, double queue_ns);

}  // namespace headrace
