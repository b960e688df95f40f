// SPDX-License-Identifier: Apache-2.0
// Touches a buffer's pages from CPUs near their nodes, in parallel: zeroing is what costs time in
// an allocation, and a node zeroes its own pages fastest.
//
// Where the pages land is not decided here but by their policy. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/machine.h"
#include "headrace/units.h"
#include "memory/page_runs.h"

namespace headrace {

// Runs to be touched from one set of CPUs; an empty set: from wherever the caller may run.
struct TouchGroup {
  CpuSet cpus;
  std::vector<PageRun> runs;
};

// How many threads to start for each group, `cpus` being the CPUs the process may use: one for each
// kTouchGrain, at most one for each CPU of the group, at most `cpus` in all.
std::vector<unsigned> touch_threads(std::span<const TouchGroup> groups, unsigned cpus);

// A thread zeroes this much in some milliseconds (at 5 to 10 GB/s), a hundred times what it takes
// to start one.
inline constexpr Bytes kTouchGrain = 16_MiB;

// Touches all runs of all groups in steps of `step` (a multiple of the page size) or the grain.
// Returns 0, or the errno value of a step that failed; then some pages are untouched.
int touch(std::byte* memory, std::span<const TouchGroup> groups, Bytes step);

}  // namespace headrace
