#include "backend/linux/free_check.h"

#include <algorithm>

#include "core/fail.h"
#include "core/mutex.h"

namespace headrace {
namespace {

struct Claims {
  Mutex mutex;
  std::map<NodeId, Bytes> taken GUARDED_BY(mutex);
};

// Never destroyed: a buffer may be made while the program ends.
Claims& claims() {
  static Claims& all = *new Claims;
  return all;
}

Bytes total_of(const std::map<NodeId, Bytes>& nodes) {
  Bytes sum;
  for (const auto& [node, bytes] : nodes) sum += bytes;
  return sum;
}

}  // namespace

Bytes Demand::total() const { return total_of(nodes); }

Status check_free(const HostMemory& host, const Demand& demand,
                  const std::map<NodeId, Bytes>& taken) {
  const Bytes all = demand.total() + total_of(taken);
  if (demand.strict) {
    for (const auto& [id, bytes] : demand.nodes) {
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

HostMemory read_unclaimed_memory() {
  HostMemory host = read_host_memory();
  Claims& all = claims();
  const MutexLock lock(all.mutex);
  for (NodeMemory& node : host.nodes) {
    const auto found = all.taken.find(node.id);
    if (found != all.taken.end()) node.free -= std::min(node.free, found->second);
  }
  return host;
}

Result<Claim> Claim::make(const Demand& demand) {
  Claims& all = claims();
  MutexLock lock(all.mutex);
  HEADRACE_TRY_STATUS(check_free(read_host_memory(), demand, all.taken));
  for (const auto& [node, bytes] : demand.nodes) all.taken[node] += bytes;
  return Claim{demand.nodes};
}

Claim::~Claim() {
  if (nodes_.empty()) return;
  Claims& all = claims();
  MutexLock lock(all.mutex);
  for (const auto& [node, bytes] : nodes_) {
    const auto found = all.taken.find(node);
    found->second -= bytes;
    if (found->second.value == 0) all.taken.erase(found);
  }
}

}  // namespace headrace
