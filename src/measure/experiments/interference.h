// SPDX-License-Identifier: Apache-2.0
// The runs of one point of `interference`, and the sample computed from them. Single-thread.
#pragma once

#include <functional>
#include <optional>

#include "measure/instruments/side_by_side/side_by_side.h"
#include "measure/session/experiment.h"

namespace headrace::experiment_interference {

// The loads of a point.
struct Runs {
  // Runs the victim, which comes first, if `victim`, and this many aggressors.
  std::function<Result<instruments::SideBySide>(bool victim, std::size_t aggressors)> run;
  std::optional<double> huge_part =
      {};  // only memory of processes; the pool reports that of threads
};

// Properties of the loads that rates depend on. A chase counts loads, all others bytes.
struct Work {
  bool victim_chases = false;
  bool aggressor_chases = false;
  bool equal = false;  // victim and aggressor do the same
  bool gives_up_cpu =
      false;  // one waits for a device; the loss of its CPU meanwhile is no disturbance
};

// Runs the victim alone, an aggressor alone, and the victim beside `aggressors`.
Result<session::Sample> interference_of(const Runs& runs, const Work& work, std::size_t aggressors);

}  // namespace headrace::experiment_interference
