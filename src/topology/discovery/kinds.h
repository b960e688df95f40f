// SPDX-License-Identifier: Apache-2.0
// The rule for the kind of a memory node: takes evidence, returns a kind and the reason.
//
// Pure: discover.cpp collects the evidence. Reasons for the rule: docs/design/node-kinds.md.
// Thread-compatible.
#pragma once

#include <optional>
#include <string>

#include "headrace/machine.h"

namespace headrace {

// All evidence for the kind of one memory node. Empty or nothing: unknown.
struct KindEvidence {
  NodeId node;
  bool has_cpus = false;

  // The kind set by the user, and the variable it is from.
  std::optional<NodeKind> override_kind;
  std::string override_source;

  // The dax device that provides the node's memory, and the device behind it.
  std::string dax_device;  // "dax0.0"
  std::string cxl_region;  // "region0": a CXL region
  std::string pmem_bus;    // "ndbus0": persistent memory

  std::string hwloc_subtype;  // "HBM", "MCDRAM", "CXL-DRAM", "DRAM", "SPM", ...

  // Firmware's values for the node's best initiator, relative to that initiator's own memory.
  struct Rated {
    NodeId initiator;
    std::optional<BytesPerSecond> bandwidth;
    std::optional<BytesPerSecond> local_bandwidth;
    std::optional<Nanoseconds> latency;
    std::optional<Nanoseconds> local_latency;
    std::string source;
  };
  std::optional<Rated> rated;

  // The kernel's memory tier, relative to that of the nodes with CPUs.
  enum class Tier { unknown, same, faster, slower };
  Tier tier = Tier::unknown;

  std::optional<NodeId> nearest;     // the nearest node with CPUs
  std::optional<unsigned> distance;  // its SLIT distance

  unsigned cpu_nodes = 0;       // nodes of the machine with CPUs
  unsigned cpu_less_nodes = 0;  // and of those without
  std::string hbm_cpu_model;    // the CPU's name if the model is known to contain HBM
  // For such a CPU: the HBM of a package, whether its package takes no DIMMs, and the memory of all
  // nodes of this node's package.
  Bytes package_hbm = {};
  bool hbm_alone = false;
  std::optional<Bytes> package_memory = {};
  bool is_guest = false;     // a hypervisor decides about packages and memory
  bool side_cached = false;  // fast memory is a cache before the node
};

struct KindDecision {
  NodeKind kind;
  std::string reason;
};

KindDecision decide_kind(const KindEvidence& evidence);

}  // namespace headrace
