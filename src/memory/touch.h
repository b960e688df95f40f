// SPDX-License-Identifier: Apache-2.0
// Touches a buffer's pages in parallel from CPUs near their nodes. Zeroing takes most of the time
// of an allocation, and a node zeroes its own pages fastest.
//
// The pages' policies decide where they are allocated. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/machine.h"
#include "headrace/units.h"
#include "memory/page_runs.h"

namespace headrace {

// Runs to touch from one set of CPUs; an empty set: any CPU of the process.
struct TouchGroup {
  CpuSet cpus;
  std::vector<PageRun> runs;
};

// Number of threads per group: one per kTouchGrain, at most one per CPU of the group, at most
// `cpus` in total. `cpus`: the CPUs that the process may use.
std::vector<unsigned> touch_threads(std::span<const TouchGroup> groups, unsigned cpus);

// A thread zeroes this much in some milliseconds (at 5 to 10 GB/s), a hundred times the cost of its
// start.
inline constexpr Bytes kTouchGrain = 16_MiB;

// Touches all runs of all groups in steps of `step` (a multiple of the page size) or the grain.
// Returns 0, or errno of a failed step; then some pages are untouched.
int touch(std::byte* memory, std::span<const TouchGroup> groups, Bytes step);

}  // namespace headrace
