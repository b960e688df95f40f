#include "measure/session/available.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace headrace::session {

Machine within_free_memory(Machine machine, const HostMemory& host) {
  if (host.unread) return machine;
  for (Node& node : machine.nodes) {
    const NodeMemory* now = host.find(node.id);
    if (!node.byte_addressable() || !node.capacity || now == nullptr) continue;
    const Bytes free = host.cgroup ? std::min(now->free, *host.cgroup) : now->free;
    if (free < *node.capacity / 2) node.capacity = Bytes{std::bit_floor(free.value)};
  }
  return machine;
}

void refuse_forbidden(std::vector<Point>& points, const HostMemory& host) {
  for (Point& point : points) {
    for (const char* name : {"memory_node", "traffic_memory_node", "from", "to", "a", "b", "c"}) {
      const std::uint64_t* const id = point.row.number(name);
      if (id == nullptr || !point.row.reason.empty()) continue;
      const NodeMemory* node = host.find(NodeId{static_cast<std::uint32_t>(*id)});
      if (node == nullptr || node->allowed) continue;
      point.row.reason =
          fmt::format("the cpuset of this process forbids memory of node {}; it may use {}", *id,
                      host.allowed_list);
      point.row.add_flag("absent");
    }
  }
}

}  // namespace headrace::session
