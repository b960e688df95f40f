// SPDX-License-Identifier: Apache-2.0
// The host's memory at this moment: which nodes have memory, which of them this process may use,
// and how much is free.
//
// Read anew for every allocation, because free memory changes at any time. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headrace/units.h"
#include "host/files.h"

namespace headrace {

struct NodeMemory {
  NodeId id;
  bool allowed = true;  // by this process's cpuset
  // Bytes available without swapping: free pages, clean file pages and half of the reclaimable
  // slabs, less the kernel's reserve (the rule behind MemAvailable, per node).
  Bytes free;
  // Free pages of the hugetlb pools, by page size.
  std::map<Bytes, std::uint64_t> free_huge;
};

struct HostMemory {
  std::vector<NodeMemory> nodes;  // nodes that have memory, ascending; at least one
  // Bytes left under the memory cgroups of this process; nullopt: no limit.
  std::optional<Bytes> cgroup;
  // Transparent huge pages are given on request (madvise).
  bool transparent = false;
  // No file descriptor was left, so free memory is unknown.
  bool unread = false;
  std::string allowed_list;  // "0-7", as the kernel prints the cpuset; empty: unknown

  const NodeMemory* find(NodeId id) const;
  Bytes free() const;  // total over all allowed nodes
  // "node 0 3.1 GiB, node 8 119 MiB".
  std::string free_text() const;
};

HostMemory read_host_memory(const HostFiles& files = HostFiles());

}  // namespace headrace
