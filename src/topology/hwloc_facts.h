// What hwloc knows: of the running system, or of another one from its XML.
//
// The only file that sees hwloc's header. Thread-compatible.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "topology/sysfs.h"

namespace headrace {

struct HwlocFacts {
  std::string version;             // of the library: "2.9.0"
  std::vector<NodeFacts> nodes;    // ascending ids
  std::vector<CacheLevel> caches;  // data and unified
  CpuSet cpus;
  std::string cpu_model;    // "" where unknown
  bool this_system = true;  // false: HWLOC_XMLFILE or the like shows another machine
};

// Of the XML file, or of the running system. absent or invalid: the file; io: hwloc failed.
Result<HwlocFacts> read_hwloc(const std::optional<std::filesystem::path>& xml);

// The running system in hwloc's XML, with the subtypes of the given nodes set.
Result<std::string> export_hwloc_xml(const std::map<unsigned, std::string>& subtypes);

}  // namespace headrace
