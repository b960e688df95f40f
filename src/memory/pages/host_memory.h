// SPDX-License-Identifier: Apache-2.0
// What the host says about its memory at this moment: which nodes have some, which of them this
// process may use, and how much is free.
//
// Read anew for every allocation: free memory is nobody's to remember. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headrace/units.h"

namespace headrace {

// Where to read, so that tests can show another host.
struct HostRoots {
  std::filesystem::path sysfs = "/sys";
  std::filesystem::path procfs = "/proc";
};

struct NodeMemory {
  NodeId id;
  bool allowed = true;  // by the cpuset of this process
  // What can be had without swapping: free pages, clean file pages and half of the reclaimable
  // slabs, less what the kernel keeps for itself (the rule behind MemAvailable, per node).
  Bytes free;
  // Free pages of the hugetlb pools, by page size.
  std::map<Bytes, std::uint64_t> free_huge;
};

struct HostMemory {
  std::vector<NodeMemory> nodes;  // that have memory, ascending; at least one
  // What the memory cgroups of this process still let it have; nothing where they set no limit.
  std::optional<Bytes> cgroup;
  // Transparent huge pages are given to those who ask.
  bool transparent = false;
  // No file descriptor was left to read it all with: then what is free is not known.
  bool unread = false;
  std::string allowed_list;  // "0-7", as the kernel prints the cpuset; empty if unknown

  const NodeMemory* find(NodeId id) const;
  Bytes free() const;  // on all allowed nodes together
  // "node 0 3.1 GiB, node 8 119 MiB".
  std::string free_text() const;
};

HostMemory read_host_memory(const HostRoots& roots = {});

}  // namespace headrace
