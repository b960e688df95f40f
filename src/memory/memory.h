// SPDX-License-Identifier: Apache-2.0
// Facade of this folder beside the public headers: mappings that unmap themselves, pages that the
// kernel moves between nodes without changing their addresses, and lost GPUs. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "memory/mapped_memory.h"
#include "memory/pages/host_memory.h"
#include "memory/pages/page_sizes.h"

namespace headrace {

// Binds whole pages to `node` (mbind with MPOL_MF_MOVE): present pages move, later ones are
// allocated there. Pages that cannot move now stay. Errors: those of the kernel; unsupported: a
// node id beyond the kernel's limit.
Status bind_pages(std::span<std::byte> pages, NodeId node);

// Moves the pages that begin at `addresses` in one call, whatever their policy is. Returns how many
// did not move (pinned, absent, or the node is full). A huge page moves as a whole.
Result<std::uint64_t> move_pages_to(std::span<void* const> addresses, NodeId node);

// The bare system call. Moves each page to its entry of `nodes`; without `nodes` it only asks where
// the pages are. `status` gets each page's node or a negative errno. Returns a negative errno if
// the call fails as a whole (-ENOMEM: a node is full). Above 0 it is the number of pages that did
// not move: the call ended at one of them. `status` is then unchanged for later pages, and for
// pages of the same batch.
std::int64_t move_pages(std::span<void* const> addresses, const int* nodes, int* status,
                        int pid = 0);

// The nodes to which the calling thread's policy binds its memory; nullopt: not bound, or the
// kernel refuses to say.
std::optional<std::vector<NodeId>> bound_nodes();

// Checks that the nodes of the host have this much memory free now; reserves nothing. Errors:
// exhausted: too little is free; the message lists the free memory per node.
Status check_free(const std::map<NodeId, Bytes>& nodes);

// The error that ended this process's context on a GPU. The GPU's memory is then lost, and no copy
// reaches it. nullopt: no such error, or unknown.
std::optional<Error> loss_of(const Node& gpu);

}  // namespace headrace
