// A loaded hwloc topology, as hwloc_facts.cpp loads it. Single-thread.
#pragma once

#include <hwloc.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/result.h"

namespace headrace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, DestroyTopology>;

// The topology in the XML file, or that of the running system. absent or invalid: the file; io:
// hwloc failed.
Result<HwlocTopology> load_hwloc(const std::optional<std::filesystem::path>& xml,
                                 bool with_devices);

// Memory nodes, ascending; without the made-up ones of GPUs.
std::vector<hwloc_obj_t> numa_nodes(hwloc_topology_t topology);

}  // namespace headrace
