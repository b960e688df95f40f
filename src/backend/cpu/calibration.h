// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel that copies cold data fastest on this CPU, by a short race at first use.
//
// This is no benchmark: the rates are rough and serve only the choice. Thread-safe.
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

// Times the kernels, interleaved, on memory flushed from the caches. Returns the fastest first.
// Ends soon after `budget` by `clock`, after at least one round. Empty if there is no memory for
// the race.
std::vector<RaceResult> race(std::span<const CopyKernel> kernels, Nanoseconds budget,
                             const Clock& clock = system_clock());

// The kernel named `wanted` ("memcpy" included) if this CPU has it, else the winner of the race.
CopyKernel choose_kernel(std::string_view wanted);

// The value of HEADRACE_COPY_KERNEL; empty if it is not set.
std::string wanted_kernel();
// A line for users on the effect of HEADRACE_COPY_KERNEL; empty if it is not set. A name that this
// CPU does not have is ignored; then the line says so and lists the valid names.
std::string override_note();

}  // namespace headrace
