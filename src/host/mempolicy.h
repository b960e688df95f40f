// SPDX-License-Identifier: Apache-2.0
// Memory policies, and the nodes of pages, by bare system calls. libnuma would save only these few
// calls, but adds a dependency and process-wide state (its warnings exit).
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "headrace/process.h"
#include "headrace/result.h"
#include "host/files.h"

namespace headrace {

// mbind of [memory, memory + length) to `nodes`. `move`: pages on other nodes move there where they
// can. Returns 0 or errno. Requires: page-aligned.
int set_policy(std::byte* memory, std::size_t length, MemoryPolicy policy,
               std::span<const NodeId> nodes, bool move = false);

// The folder of the kernel's weights of interleaving, one table for the whole host (Linux 6.9).
inline constexpr const char* kWeights = "sys/kernel/mm/mempolicy/weighted_interleave";
// Its weights; empty: no such table.
std::map<NodeId, unsigned> kernel_weights(const HostFiles& files = HostFiles());

// set_mempolicy of the calling thread; returns 0 or errno.
int set_thread_policy(MemoryPolicy policy, std::span<const NodeId> nodes);

// The nodes to which the calling thread's policy binds its memory; nullopt: not bound, or the
// kernel refuses to say.
std::optional<std::vector<NodeId>> bound_nodes();

// Binds whole pages to `node` (mbind with MPOL_MF_MOVE): present pages move, later ones are
// allocated there. Pages that cannot move now stay. Errors: those of the kernel; unsupported: a
// node id beyond the kernel's limit.
Status bind_pages(std::span<std::byte> pages, NodeId node);

// Moves each page to its entry of `nodes`; without `nodes` it only asks where the pages are.
// `status` gets each page's node or a negative errno (-ENOENT: absent; -EFAULT: the shared zero
// page, or no mapping). Returns a negative errno if the call fails as a whole (-ENOMEM: a node is
// full). Above 0 it is the number of pages that did not move: the call ended at one of them.
// `status` is then unchanged for later pages, and for pages of the same batch.
std::int64_t move_pages(std::span<void* const> addresses, const int* nodes, int* status,
                        int pid = 0);

// Moves the pages that begin at `addresses` in one call, whatever their policy is. Returns how many
// did not move (pinned, absent, or the node is full). A huge page moves as a whole.
Result<std::uint64_t> move_pages_to(std::span<void* const> addresses, NodeId node);

// Faults in [memory, memory + length) for writing. Returns 0 or errno. EFAULT: the hugetlb pool ran
// out, where a store would end in SIGBUS.
int populate(std::byte* memory, std::size_t length);

}  // namespace headrace
