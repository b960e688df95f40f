// SPDX-License-Identifier: Apache-2.0
// What hwloc knows: of the running system, or of another one from its XML.
//
// Thread-compatible.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "topology/discovery/sysfs.h"

namespace headrace {

struct HwlocFacts {
  std::string version;             // of the library: "2.9.0"
  std::vector<NodeFacts> nodes;    // ascending ids
  std::vector<CacheLevel> caches;  // data and unified
  CpuSet cpus;
  std::string cpu_model;    // "" where unknown
  bool this_system = true;  // false: HWLOC_XMLFILE or the like shows another machine
};

// Reads the XML file, or asks the running system. absent or invalid: the file; io: hwloc failed.
Result<HwlocFacts> read_hwloc(const std::optional<std::filesystem::path>& xml);

}  // namespace headrace
