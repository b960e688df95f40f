// SPDX-License-Identifier: Apache-2.0
// Facade of the folder, besides the public headers: mapped memory that unmaps itself, pages of
// this process moved to another node by the kernel, whose addresses stay, and GPUs that are lost.
// Thread-safe.
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

// Binds whole pages to `node`: those that are there move, those to come are allocated there
// (mbind with MPOL_MF_MOVE). Pages that cannot move at this moment stay. The errors of the kernel,
// unsupported for a node it cannot name.
Status bind_pages(std::span<std::byte> pages, NodeId node);

// Moves the pages that begin at `addresses`, in one call, whatever their policy says; how many did
// not move (pinned, absent, or the node full). A huge page moves as a whole.
Result<std::uint64_t> move_pages_to(std::span<void* const> addresses, NodeId node);

// The bare call: moves each page to its node, or without `nodes` asks where they are. `status` has
// the node of each, or a negative errno value; so has the result where the call fails as a whole,
// -ENOMEM where a node is full. Above 0 it is how many did not move, the call having ended at one;
// after it, and among those that were to move together, `status` is left as it was.
std::int64_t move_pages(std::span<void* const> addresses, const int* nodes, int* status,
                        int pid = 0);

// The nodes that the policy of the calling thread binds its memory to; nothing if it binds to none,
// or nobody may ask.
std::optional<std::vector<NodeId>> bound_nodes();

// Checks that the nodes of the host have this much memory free now; reserves nothing.
// Errors: exhausted: too little is free; the message lists the free memory per node.
Status check_free(const std::map<NodeId, Bytes>& nodes);

// What has happened to a GPU, where an error has ended this process' context on it: whatever was in
// its memory is gone, and no copy reaches it any more. nullopt: that has not happened, or nobody
// can tell.
std::optional<Error> loss_of(const Node& gpu);

}  // namespace headrace
