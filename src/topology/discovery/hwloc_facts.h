// SPDX-License-Identifier: Apache-2.0
// Facts from hwloc, about the running system or, from XML, about another one.
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
  std::string version;             // hwloc's version: "2.9.0"
  std::vector<NodeFacts> nodes;    // in ascending order of ids
  std::vector<CacheLevel> caches;  // data and unified
  CpuSet cpus;
  std::string cpu_model;    // "" if unknown
  bool this_system = true;  // false: another machine, through HWLOC_XMLFILE or a similar variable
};

// Reads the XML file, or asks the running system. Errors: absent, invalid: the file; io: hwloc
// failed.
Result<HwlocFacts> read_hwloc(const std::optional<std::filesystem::path>& xml);

}  // namespace headrace
