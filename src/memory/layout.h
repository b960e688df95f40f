// SPDX-License-Identifier: Apache-2.0
// A placement on this host with one size of pages: which run of a buffer goes to which node, what
// that takes from each of them, and the policies that tell the kernel.
//
// Thread-compatible.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/machine.h"
#include "headrace/placement.h"
#include "headrace/result.h"
#include "memory/page_runs.h"
#include "memory/pages/free_check.h"
#include "memory/pages/host_memory.h"
#include "memory/pages/policy.h"
#include "memory/touch.h"

namespace headrace {

// One size of pages, in numbers.
struct Pages {
  PageSize size;
  Bytes map_by;       // the mapping is a multiple of this
  Bytes place_by;     // what goes to one node together
  bool pool = false;  // from a hugetlb pool
};

Pages pages_of(PageSize size);

// The machine and the placement, which is resolved, outlive it.
struct Layout {
  const Machine& machine;
  const Placement& placement;
  Pages pages;
  Bytes mapped;
  std::vector<NodeId> ids;            // the placement's nodes, then those it spills to
  std::vector<PageRun> runs;          // empty: the kernel deals the pages itself,
  std::optional<MemoryPolicy> dealt;  // by this policy; by first touch: to whom it may
  std::vector<Stage> stages;
  Bytes unit;

  bool by_first_touch() const { return placement.dealing == Dealing::first_touch; }
  // Whether all of it is for all nodes of the placement.
  bool spills() const {
    return stages.size() > 1 || stages.front().nodes.size() != placement.nodes.size();
  }
};

// All of it on the placement's nodes. `dealing`: by the kernel itself where it can.
Layout lay_out(const Machine& machine, const Placement& placement, Bytes bytes, PageSize size,
               bool dealing = true);
// What its nodes have no room for goes to those it spills to, as far as `host` has room.
// exhausted: there is too little on all of them.
Status spill(Layout& layout, const HostMemory& host);

// By first touch: what the nodes would get if they were filled in their order.
Demand demand_of(const Layout& layout, const HostMemory& host);

// The least bytes in which each node of the placement gets its share of pages of this size.
Bytes least_bytes(const Layout& layout);

// Empty if the layout can have its size of pages as far as can be told beforehand.
std::string why_unfit(const Layout& layout, const HostMemory& host);

// Sets the policies; with longer runs where the process has too many mappings for these. `move`:
// pages that are there move, if they can. denied, exhausted.
Status place_pages(std::byte* memory, Layout& layout, const HostMemory& host, bool move = false);

// Moves touched pages of a placement that spills in order to the nodes of their runs. A page that
// is only preferred there goes to another node rather than take the place of a file page; moving
// drops that one, and never calls the OOM killer. What cannot move stays.
void settle(std::byte* memory, const Layout& layout);

std::vector<TouchGroup> touch_groups(const Layout& layout);

// The node of the CPU that calls; nothing where the machine does not know it.
std::optional<NodeId> calling_node(const Machine& machine);

// Leaves out of what resolve() chose (Placement::chosen) what the host does not have or the cpuset
// of this process forbids, unless nothing would be left. For each request anew: both may change.
void leave_out_unusable(Placement& resolved, const HostMemory& host);

// That memory of these nodes is there and this process's to use: absent, denied.
Status check_nodes(const Machine& machine, const Placement& placement, const HostMemory& host);

}  // namespace headrace
