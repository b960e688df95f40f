// SPDX-License-Identifier: Apache-2.0
// What of a machine's memory measuring may take, as the host is at this moment. Thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "core/text/cgroups.h"
#include "headrace/machine.h"
#include "measure/session/experiment.h"
#include "memory/memory.h"

namespace headrace::session {

// The machine with the capacity of each node lowered to what is free there and what memory cgroups
// (memory.max) leave: of it experiments take their parts (`fitting`). Only where less than half of
// the node is free, and then a power of two, so that what changes from hour to hour does not change
// the sizes of buffers, which are parameters of rows.
Machine within_free_memory(Machine machine, const HostMemory& host);

// The machine with no more CPUs in a node than control groups give time for (cpu.max), one of each
// core before second threads: of them experiments take theirs. More threads would stop each other
// in turn, and what is measured would be the kernel's accounts. Not where the limit is no less than
// the CPUs that this process may use.
Machine within_cpu_time(Machine machine, const std::optional<CpuTimeLimit>& limit);

// Gives points of more threads than that (teams, and observers beside others) a reason.
void refuse_too_many_threads(std::vector<Point>& points, const std::optional<CpuTimeLimit>& limit);

// Gives points on memory that the cpuset of this process forbids a reason, so that they cost no
// time.
void refuse_forbidden(std::vector<Point>& points, const HostMemory& host);

}  // namespace headrace::session
