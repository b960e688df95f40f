// SPDX-License-Identifier: Apache-2.0
#include "place/speed.h"

#include <algorithm>

#include "core/check.h"

namespace headrace {
namespace {

// The best value among initiators, or that of `initiator`.
Scale by_access(std::optional<NodeId> initiator, bool measured,
                std::optional<double> (*value)(const AccessAttributes&)) {
  return [=](const Node& node) -> std::optional<double> {
    std::optional<double> best;
    for (const AccessAttributes& access : node.access) {
      const auto found = access.measured == measured ? value(access) : std::nullopt;
      if (!found) continue;
      if (access.initiator == initiator) return found;
      best = std::max(best.value_or(0), *found);
    }
    return best;
  };
}

}  // namespace

Scale by_bandwidth(std::optional<NodeId> initiator, bool measured) {
  return by_access(initiator, measured, [](const AccessAttributes& access) {
    return access.read_bandwidth ? std::optional(access.read_bandwidth->value) : std::nullopt;
  });
}

Scale by_latency(std::optional<NodeId> initiator, bool measured) {
  return by_access(initiator, measured, [](const AccessAttributes& access) {
    const bool known = access.read_latency && access.read_latency->count() > 0;
    return known ? std::optional(1 / seconds(*access.read_latency)) : std::nullopt;
  });
}

std::optional<double> bandwidth_of_kind(const Node& node) {
  switch (node.kind) {
    case NodeKind::hbm: return 8;
    case NodeKind::dram: return 4;
    case NodeKind::cxl: return 2;
    case NodeKind::gpu:
    case NodeKind::storage: return 1;
  }
  CHECK(false);
  return std::nullopt;
}

// On processors with both, HBM has a longer path than DDR; CXL is behind a link.
std::optional<double> latency_of_kind(const Node& node) {
  switch (node.kind) {
    case NodeKind::dram: return 8;
    case NodeKind::hbm: return 6;
    case NodeKind::cxl: return 3;
    case NodeKind::gpu:
    case NodeKind::storage: return 1;
  }
  CHECK(false);
  return std::nullopt;
}

}  // namespace headrace
