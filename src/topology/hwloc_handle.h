// SPDX-License-Identifier: Apache-2.0
// A loaded hwloc topology, as hwloc_facts.cpp loads it. Single-thread.
#pragma once

#include <hwloc.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/result.h"

namespace headrace {

extern GlobalMutex hwloc_mutex;

// Calls hwloc functions that take hwloc's own locks. A fork() waits for them, so these locks are
// free in the child. Thread-safe.
template <class Functions>
int locked_hwloc(const Functions& functions) {
  const MutexLock lock(hwloc_mutex);
  return functions();
}

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const {
    locked_hwloc([&] { return hwloc_topology_destroy(topology), 0; });
  }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, DestroyTopology>;

// The topology from the XML file, or of the running system. Errors: absent, invalid: the file; io:
// hwloc failed.
Result<HwlocTopology> load_hwloc(const std::optional<std::filesystem::path>& xml,
                                 bool with_devices);

// Memory nodes in ascending order, without those that hwloc adds for GPUs.
std::vector<hwloc_obj_t> numa_nodes(hwloc_topology_t topology);

}  // namespace headrace
