// SPDX-License-Identifier: Apache-2.0
// A placement on this host with one page size: which run of a buffer goes to which node, how much
// memory each node needs, and the kernel policies that place the pages.
//
// Thread-compatible.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/machine.h"
#include "headrace/placement.h"
#include "headrace/result.h"
#include "host/host_memory.h"
#include "host/mempolicy.h"
#include "memory/free_check.h"
#include "memory/page_runs.h"
#include "memory/touch.h"

namespace headrace {

// A page size in numbers.
struct Pages {
  PageSize size;
  Bytes map_by;       // the mapping is a multiple of this
  Bytes place_by;     // unit that goes to one node as a whole
  bool pool = false;  // from a hugetlb pool
};

Pages pages_of(PageSize size);

// Requires: the machine and the placement outlive it; the placement is resolved.
struct Layout {
  const Machine& machine;
  const Placement& placement;
  Pages pages;
  Bytes mapped;
  std::vector<NodeId> ids;             // the placement's nodes, then its spill nodes
  std::vector<PageRun> runs;           // empty: the kernel distributes the pages itself,
  std::optional<MemoryPolicy> policy;  // by this policy; with first touch: allowed nodes
  std::vector<Stage> stages;
  Bytes unit;

  bool by_first_touch() const { return placement.distribution == Distribution::first_touch; }
  // Whether a part goes to fewer nodes than the placement names, or to spill nodes.
  bool spills() const {
    const std::vector<std::size_t>& first = stages.front().nodes;
    return stages.size() > 1 || first.size() != placement.nodes.size() || first.front() > 0;
  }
};

// Puts all bytes on the placement's nodes. `by_kernel`: the kernel distributes the pages where it
// can.
Layout lay_out(const Machine& machine, const Placement& placement, Bytes bytes, PageSize size,
               bool by_kernel = true);
// Moves the part that does not fit on the placement's nodes to its spill nodes, as far as `host`
// has free memory. Errors: exhausted: too little is free on all of them.
Status spill(Layout& layout, const HostMemory& host);

// Bytes needed per node. With first touch: as if the nodes were filled in their order.
Demand demand_of(const Layout& layout, const HostMemory& host);

// The smallest size at which each node of the placement gets its share of pages of this size.
Bytes least_bytes(const Layout& layout);

// Why the layout cannot have its page size, as far as known beforehand; empty: it can.
std::string why_unfit(const Layout& layout, const HostMemory& host);

// Sets the policies, with longer runs when the process has too many mappings for these. `move`:
// also moves present pages that can move. Errors: denied, exhausted.
Status place_pages(std::byte* memory, Layout& layout, const HostMemory& host, bool move = false);

// Moves touched pages to the nodes of their runs, for a placement that spills in order. The policy
// is only a preference: a full node's page is allocated elsewhere rather than in place of a file
// page. Moving drops that file page and never calls the OOM killer. Pages that cannot move stay.
void settle(std::byte* memory, const Layout& layout);

std::vector<TouchGroup> touch_groups(const Layout& layout);

// The node of the calling CPU; nullopt: the machine does not list that CPU.
std::optional<NodeId> calling_node(const Machine& machine);

// Removes nodes that resolve() chose (Placement::chosen) if the host lacks them or the cpuset of
// this process forbids them, unless no node would be left. Call it per request: both may change.
void leave_out_unusable(Placement& resolved, const HostMemory& host);

// Checks that the nodes have memory and that this process may use it. Errors: absent, denied.
Status check_nodes(const Machine& machine, const Placement& placement, const HostMemory& host);

}  // namespace headrace
