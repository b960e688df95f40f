// SPDX-License-Identifier: Apache-2.0
// The rule that says what a memory node is made of: evidence in, kind and reason out.
//
// Pure: where the evidence comes from is discover.cpp's business, and why the rule is this one is
// told in docs/design/node-kinds.md. Thread-compatible.
#pragma once

#include <optional>
#include <string>

#include "headrace/machine.h"

namespace headrace {

// Everything known that bears on one memory node's kind. Empty and nothing mean unknown.
struct KindEvidence {
  NodeId node;
  bool has_cpus = false;

  // The user's word, and the variable it came from.
  std::optional<NodeKind> override_kind;
  std::string override_source;

  // The dax device whose memory the node is, and what stands behind it.
  std::string dax_device;  // "dax0.0"
  std::string cxl_region;  // "region0": a CXL region
  std::string pmem_bus;    // "ndbus0": persistent memory

  std::string hwloc_subtype;  // "HBM", "MCDRAM", "CXL-DRAM", "DRAM", "SPM", ...

  // Firmware's figures from the node's best initiator, against that initiator's own memory.
  struct Rated {
    NodeId initiator;
    std::optional<BytesPerSecond> bandwidth;
    std::optional<BytesPerSecond> local_bandwidth;
    std::optional<Nanoseconds> latency;
    std::optional<Nanoseconds> local_latency;
    std::string source;
  };
  std::optional<Rated> rated;

  // The kernel's memory tier against that of the nodes with CPUs.
  enum class Tier { unknown, same, faster, slower };
  Tier tier = Tier::unknown;

  std::optional<NodeId> nearest;     // the nearest node with CPUs
  std::optional<unsigned> distance;  // its SLIT distance

  unsigned cpu_nodes = 0;       // nodes of the machine with CPUs
  unsigned cpu_less_nodes = 0;  // and without
  std::string hbm_cpu_model;    // the CPU's name if it is a model known to carry HBM
  // For such a CPU: the HBM of a package, whether a package takes no DIMMs, and the memory of all
  // nodes of this node's package.
  Bytes package_hbm = {};
  bool hbm_alone = false;
  std::optional<Bytes> package_memory = {};
  bool is_guest = false;     // a hypervisor decides on its packages, and which memory it has
  bool side_cached = false;  // fast memory is a cache before the node
};

struct KindDecision {
  NodeKind kind;
  std::string reason;
};

KindDecision decide_kind(const KindEvidence& evidence);

}  // namespace headrace
