// SPDX-License-Identifier: Apache-2.0
#include "memory/free_check.h"

#include <pthread.h>

#include <algorithm>

#include "core/fail.h"
#include "core/fork.h"

namespace headrace {
namespace {

GlobalMutex claims_mutex{kRankOfMemory};

// Never destroyed: a buffer may be made while the program ends.
std::map<NodeId, Bytes>& claimed() REQUIRES(claims_mutex) {
  static std::map<NodeId, Bytes>& all = *new std::map<NodeId, Bytes>;
  return all;
}

// A child of fork() does not have the parent's threads that claimed memory.
[[maybe_unused]] const int claims_registered = pthread_atfork(nullptr, nullptr, [] {
  const MutexLock lock(claims_mutex);
  claimed().clear();
});

Bytes total_of(const std::map<NodeId, Bytes>& nodes) {
  Bytes sum;
  for (const auto& [node, bytes] : nodes) sum += bytes;
  return sum;
}

}  // namespace

Bytes Demand::total() const { return total_of(nodes); }

Status check_read(const HostMemory& host) {
  if (!host.unread) return {};
  return fail(ErrorCode::exhausted,
              "no file descriptor is left to see how much memory is free; close some, or raise the "
              "limit (ulimit -n)");
}

Status check_free(const HostMemory& host, const Demand& demand,
                  const std::map<NodeId, Bytes>& taken) {
  HEADRACE_TRY_STATUS(check_read(host));
  const Bytes all = demand.total() + total_of(taken);
  if (demand.strict) {
    for (const auto& [id, bytes] : demand.nodes) {
      if (bytes.value == 0) continue;
      const NodeMemory* node = host.find(id);
      const auto found = taken.find(id);
      const Bytes others = found == taken.end() ? Bytes{} : found->second;
      if (node != nullptr && bytes + others <= node->free) continue;
      return fail(ErrorCode::exhausted,
                  "{} do not fit on node {}; free now: {}; ask for less, free some, or let it "
                  "spill (strict = false)",
                  to_string(bytes), raw(id), host.free_text());
    }
  } else if (all > host.free()) {
    return fail(ErrorCode::exhausted, "{} do not fit; free now: {}; ask for less or free some",
                to_string(demand.total()), host.free_text());
  }
  if (host.cgroup && all > *host.cgroup) {
    return fail(ErrorCode::exhausted,
                "{} do not fit into the memory cgroup; free now: {}; ask for less or raise its "
                "limit (memory.max)",
                to_string(demand.total()), host.free_text());
  }
  return {};
}

Status check_free(const std::map<NodeId, Bytes>& nodes) {
  return check_free(read_unclaimed_memory(), Demand{.nodes = nodes});
}

HostMemory read_unclaimed_memory() {
  HostMemory host = read_host_memory();
  const MutexLock lock(claims_mutex);
  for (NodeMemory& node : host.nodes) {
    const auto found = claimed().find(node.id);
    if (found != claimed().end()) node.free -= std::min(node.free, found->second);
  }
  return host;
}

Result<Claim> Claim::make(const Demand& demand) {
  const MutexLock lock(claims_mutex);
  HEADRACE_TRY_STATUS(check_free(read_host_memory(), demand, claimed()));
  for (const auto& [node, bytes] : demand.nodes) claimed()[node] += bytes;
  return Claim{demand.nodes};
}

Claim::~Claim() {
  if (nodes_.empty()) return;
  const MutexLock lock(claims_mutex);
  for (const auto& [node, bytes] : nodes_) {
    const auto found = claimed().find(node);
    found->second -= bytes;
    if (found->second.value == 0) claimed().erase(found);
  }
}

}  // namespace headrace
