// SPDX-License-Identifier: Apache-2.0
// Samples on a machine that runs other tests too.
#pragma once

#include "measure/session/experiment.h"

namespace headrace::session {

// A sample that was not too busy a moment, or the last of ten tries.
inline Result<Sample> sample_patiently(Probe& probe) {
  auto sample = probe.sample();
  for (int i = 0; i < 10 && !sample && sample.error().code == ErrorCode::timed_out; ++i) {
    sample = probe.sample();
  }
  return sample;
}

}  // namespace headrace::session
