#include "measure/session/available.h"

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

}  // namespace headrace::session
