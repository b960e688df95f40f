// SPDX-License-Identifier: Apache-2.0
// The memory policy of a whole process, inherited by its threads and child programs, and its free
// memory. `headrace run` sets the policy before it executes another program.
//
// For single allocations see buffer.h: a buffer's private policy overrides this one. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/export.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// The kernel's policies (set_mempolicy(2)). Only `bind` is strict.
enum class MemoryPolicy : std::uint8_t {
  none,            // the node of the CPU that touches a page
  bind,            // these nodes, nearest first; when full, the OOM killer
  preferred,       // the first node of the list, then the nearest
  preferred_many,  // these nodes, nearest first, then the others; Linux 5.15
  interleave,      // interleaved page by page; silently skips full nodes
  // Interleaved by the weights in /sys/kernel/mm/mempolicy/weighted_interleave, one table for all
  // programs; Linux 6.9.
  weighted_interleave,
};

std::string_view to_string(MemoryPolicy policy);

// Sets the policy of the calling thread, and of threads and programs that it starts afterwards.
// Pages already touched stay where they are.
// Errors: absent: a node that this host lacks or its cpuset forbids; invalid: no node for a policy
// that needs one; unsupported: the kernel lacks the policy; denied: a container forbids it.
Status set_process_policy(MemoryPolicy policy, const std::vector<NodeId>& nodes = {});

// Memory that this process can get now without swapping.
struct FreeMemory {
  std::map<NodeId, Bytes> nodes;  // nodes with memory that its cpuset allows
  std::optional<Bytes> cgroup;    // left by the limits of its memory cgroups; nothing: no limit
};

FreeMemory free_memory();

}  // namespace HEADRACE_API headrace
