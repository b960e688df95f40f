// What of a machine's memory measuring may take, as the host is at this moment. Thread-safe.
#pragma once

#include <vector>

#include "headrace/machine.h"
#include "measure/session/experiment.h"
#include "memory/memory.h"

namespace headrace::session {

// The machine with the capacity of each node lowered to what is free there and what memory cgroups
// (memory.max) leave: of it experiments take their parts (`fitting`). Only where less than half of
// the node is free, and then a power of two, so that what changes from hour to hour does not change
// the sizes of buffers, which are parameters of rows.
Machine within_free_memory(Machine machine, const HostMemory& host);

// Gives points on memory that the cpuset of this process forbids a reason, so that they cost no
// time.
void refuse_forbidden(std::vector<Point>& points, const HostMemory& host);

}  // namespace headrace::session
