// SPDX-License-Identifier: Apache-2.0
// Samples on a machine that runs other tests at the same time.
#pragma once

#include "core/fail.h"
#include "measure/session/experiment.h"

namespace headrace::session {

// The first sample of a point.
inline Result<Sample> sample_of(const Point& point, BufferPool& buffers, Random& random) {
  HEADRACE_TRY(const auto probe, point.prepare(buffers, random));
  return probe->sample();
}

// The first sample of an undisturbed moment, or the last of ten tries.
inline Result<Sample> sample_patiently(Probe& probe) {
  auto sample = probe.sample();
  for (int i = 0; i < 10 && !sample && sample.error().code == ErrorCode::timed_out; ++i) {
    sample = probe.sample();
  }
  return sample;
}

}  // namespace headrace::session
