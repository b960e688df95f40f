// SPDX-License-Identifier: Apache-2.0
// Memory policies and page queries by bare system calls. libnuma would save only these three calls,
// but adds a dependency and process-wide state (its warnings exit).
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "headrace/placement.h"
#include "headrace/process.h"

namespace headrace {

// mbind of [memory, memory + length) to `nodes`. `move`: pages on other nodes move there where they
// can. Returns 0 or errno. Requires: page-aligned.
int set_policy(std::byte* memory, std::size_t length, MemoryPolicy policy,
               std::span<const NodeId> nodes, bool move = false);

// The weights of the kernel's interleaving, one table for the whole system (Linux 6.9); empty:
// none.
std::vector<NodeWeight> kernel_weights(
    const std::filesystem::path& folder = "/sys/kernel/mm/mempolicy/weighted_interleave");

// set_mempolicy of the calling thread; returns 0 or errno.
int set_thread_policy(MemoryPolicy policy, std::span<const NodeId> nodes);

// Gets the node of each page at `addresses`, or a negative errno per page (-ENOENT: absent;
// -EFAULT: the shared zero page, or no mapping). Returns 0 or errno.
int page_nodes(std::span<void*> addresses, std::span<int> nodes);

// Faults in [memory, memory + length) for writing. Returns 0 or errno. EFAULT: the hugetlb pool ran
// out, where a store would end in SIGBUS.
int populate(std::byte* memory, std::size_t length);

}  // namespace headrace
