// SPDX-License-Identifier: Apache-2.0
// Memory policies and page queries by bare system calls: libnuma adds a dependency and process-wide
// state (its warnings exit), and takes no more than these three calls off us.
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

// mbind of [memory, memory + length) to `nodes`; with `move` pages that are elsewhere go there, as
// far as they can. 0 or an errno value. Requires: page-aligned.
int set_policy(std::byte* memory, std::size_t length, MemoryPolicy policy,
               std::span<const NodeId> nodes, bool move = false);

// By which weights the kernel interleaves: one table for the whole system (Linux 6.9); empty where
// it has none.
std::vector<NodeWeight> kernel_weights(
    const std::filesystem::path& folder = "/sys/kernel/mm/mempolicy/weighted_interleave");

// set_mempolicy of the calling thread; 0 or an errno value.
int set_thread_policy(MemoryPolicy policy, std::span<const NodeId> nodes);

// Where the pages at `addresses` are: a node, or a negative errno value per page (-ENOENT: none
// there; -EFAULT: the shared page of zeros, or no mapping). 0 or an errno value.
int page_nodes(std::span<void*> addresses, std::span<int> nodes);

// Faults in [memory, memory + length) for writing; 0 or an errno value. EFAULT: the pages of a
// hugetlb pool ran out where a store would have ended in SIGBUS.
int populate(std::byte* memory, std::size_t length);

}  // namespace headrace
