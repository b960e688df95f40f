// SPDX-License-Identifier: Apache-2.0
// The runs of a point of `interference` and the sample that is made of them. Single-thread.
#pragma once

#include <functional>
#include <optional>

#include "measure/instruments/side_by_side/side_by_side.h"
#include "measure/session/experiment.h"

namespace headrace::experiment_interference {

// The loads of a point.
struct Runs {
  // At work: the victim, which is the first, or not, and so many aggressors.
  std::function<Result<instruments::SideBySide>(bool victim, std::size_t aggressors)> run;
  std::optional<double> huge_part = {};  // of the memory of processes: a thread's is the pool's
};

// The kinds of work, as far as rates depend on them: a chase counts loads, all others bytes.
struct Work {
  bool victim_chases = false;
  bool aggressor_chases = false;
  bool equal = false;         // both do the same
  bool gives_up_cpu = false;  // one waits for a device, and is not disturbed by that
};

// The victim alone, an aggressor alone, and the victim beside so many.
Result<session::Sample> interference_of(const Runs& runs, const Work& work, std::size_t aggressors);

}  // namespace headrace::experiment_interference
