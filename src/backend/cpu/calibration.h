// SPDX-License-Identifier: Apache-2.0
// Which kernel copies cold data fastest on this CPU: a short race at first use.
//
// Not a benchmark: its rates are rough and serve only to choose. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/clock.h"
#include "headrace/copy.h"
#include "headrace/units.h"

namespace headrace {

struct RaceResult {
  CopyKernel kernel;
  Nanoseconds time;  // median time of one sample
};

// Times the kernels, interleaved, on memory flushed from the caches; fastest first. Ends soon after
// `budget` by `clock`, however few rounds that allows (at least one). Empty if there is no memory
// for it.
std::vector<RaceResult> race(std::span<const CopyKernel> kernels, Nanoseconds budget,
                             const Clock& clock = system_clock());

// The choice and how it came about.
struct KernelChoice {
  CopyKernel kernel;
  std::string reason;  // "fastest of 6 in the calibration", "HEADRACE_COPY_KERNEL"
};

// The kernel named `wanted` ("memcpy" included) if this CPU has it, else the winner of the race.
KernelChoice choose_kernel(std::string_view wanted);

// What HEADRACE_COPY_KERNEL names; empty when it is not set.
std::string wanted_kernel();
// For people: what came of HEADRACE_COPY_KERNEL; a name this CPU has not is ignored, and this says
// so and lists those it has. Empty when it is not set.
std::string override_note();

}  // namespace headrace
