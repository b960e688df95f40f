// SPDX-License-Identifier: Apache-2.0
// Facade of this folder beside the public headers: mappings that unmap themselves, memory shared
// with other processes, checks of free memory, and lost GPUs; with the host's memory, page sizes
// and policies. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "headrace/buffer.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "host/host_memory.h"
#include "host/mempolicy.h"
#include "host/page_sizes.h"
#include "memory/file_memory.h"
#include "memory/mapped_memory.h"

namespace headrace {

// Checks that the nodes of the host have this much memory free now; reserves nothing. Errors:
// exhausted: too little is free; the message lists the free memory per node.
Status check_free(const std::map<NodeId, Bytes>& nodes);

// Memory by a placement that other processes can map read-only, with the file to give them (see
// SealedMemory).
struct SharedBuffer {
  std::unique_ptr<Buffer> buffer;
  OwnDescriptor file;
};
// As allocate(). Errors: also unsupported: a placement on storage or on a GPU; a kernel before 5.1.
Result<SharedBuffer> allocate_shared(const Machine& machine, Bytes bytes,
                                     const Placement& placement);

// The error that ended this process's context on a GPU. The GPU's memory is then lost, and no copy
// reaches it. nullopt: no such error, or unknown.
std::optional<Error> loss_of(const Node& gpu);

}  // namespace headrace
