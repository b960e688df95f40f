// SPDX-License-Identifier: Apache-2.0
// The memory policy of a whole process, which its threads and the programs it starts inherit, and
// what is free for it: what `headrace run` sets before it becomes another program.
//
// For memory of one's own choice see buffer.h, whose policies are private to an allocation and
// stronger than this one. Thread-safe.
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

// The kernel's words (set_mempolicy(2)). Only `bind` is strict.
enum class MemoryPolicy : std::uint8_t {
  none,            // the node of the CPU that touches a page
  bind,            // these nodes, nearest first, or the OOM killer
  preferred,       // the first node of the list, then the nearest
  preferred_many,  // these nodes, nearest first, then the others; Linux 5.15
  interleave,      // page by page in turn; past a full node in silence
  // In turn by the weights of /sys/kernel/mm/mempolicy/weighted_interleave, one table for all
  // programs; Linux 6.9.
  weighted_interleave,
};

std::string_view to_string(MemoryPolicy policy);

// Sets the policy of the calling thread; threads and programs that it starts from now on have it
// too. Pages already touched stay where they are.
// absent: a node that this host has not, or its cpuset forbids; invalid: no node where the policy
// wants some; unsupported: the kernel does not know the policy; denied: a container forbids it.
Status set_process_policy(MemoryPolicy policy, const std::vector<NodeId>& nodes = {});

// What this process can have now without swapping.
struct FreeMemory {
  std::map<NodeId, Bytes> nodes;  // those with memory that its cpuset allows
  std::optional<Bytes> cgroup;    // what its memory cgroups leave; nothing where they set no limit
};

FreeMemory free_memory();

}  // namespace HEADRACE_API headrace
