// SPDX-License-Identifier: Apache-2.0
// The part of a machine's memory and CPUs that a session may use, given the host's present state.
// Thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "headrace/machine.h"
#include "host/cgroups.h"
#include "measure/session/experiment.h"
#include "memory/memory.h"

namespace headrace::session {

// Lowers the capacity of each node to its free memory and to what memory cgroups leave
// (memory.max); experiments take their shares of it (`fitting`). Applies only if less than half of
// a node is free, and then rounds to a power of two: buffer sizes are parameters of rows and must
// not change from hour to hour.
Machine within_free_memory(Machine machine, const HostMemory& host);

// Reduces the CPUs of each node to the number that control groups give time for (cpu.max), one per
// core before second threads. More threads would stop each other in turn, and the measurement would
// show the kernel's accounting. Changes nothing if the limit covers all usable CPUs.
Machine within_cpu_time(Machine machine, const std::optional<CpuTimeLimit>& limit);

// Gives a reason to points with more threads than that: teams, and observers beside other threads.
void refuse_too_many_threads(std::vector<Point>& points, const std::optional<CpuTimeLimit>& limit);

// Gives a reason to points on memory that this process's cpuset forbids, so that they cost no time.
void refuse_forbidden(std::vector<Point>& points, const HostMemory& host);

}  // namespace headrace::session
