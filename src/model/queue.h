// SPDX-License-Identifier: Apache-2.0
// The relation of utilisation and added latency at a ceiling. Thread-safe; pure functions.
//
// Utilisation u is load / bandwidth. It grows with the queue delay q from 0 to kMostUtilisation,
// which is a little above 1, since `bandwidth` is what a full load reaches, with a finite number of
// requests in flight.
#pragma once

#include "model/ceilings.h"

namespace headrace {

// Utilisation and its derivative.
struct Utilisation {
  double value = 0;
  double slope = 0;  // per ns
};

// The utilisation at which a ceiling adds `queue_ns` >= 0. `queue`: of the ceiling, or empty for
// the default shape.
Utilisation utilisation(const Curve& queue, double queue_ns);

}  // namespace headrace
