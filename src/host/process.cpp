// SPDX-License-Identifier: Apache-2.0
#include "headrace/process.h"

#include <cerrno>
#include <span>

#include "core/check.h"
#include "core/fail.h"
#include "headrace/cpus.h"
#include "host/host_memory.h"
#include "host/mempolicy.h"

namespace headrace {
namespace {

std::string text_of(std::span<const NodeId> nodes) {
  CpuSet ids;
  for (const NodeId node : nodes) ids.push_back(raw(node));
  return to_string(ids);
}

// The first node of the list that this process may not use; nullopt: it may use all.
std::optional<NodeId> missing(const HostMemory& host, std::span<const NodeId> nodes) {
  for (const NodeId node : nodes) {
    const NodeMemory* found = host.find(node);
    if (found == nullptr || !found->allowed) return node;
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(MemoryPolicy policy) {
  switch (policy) {
    case MemoryPolicy::none: return "none";
    case MemoryPolicy::bind: return "bind";
    case MemoryPolicy::preferred: return "preferred";
    case MemoryPolicy::preferred_many: return "preferred_many";
    case MemoryPolicy::interleave: return "interleave";
    case MemoryPolicy::weighted_interleave: return "weighted_interleave";
  }
  CHECK(false);
  return {};
}

Status set_process_policy(MemoryPolicy policy, const std::vector<NodeId>& nodes) {
  if (nodes.empty() != (policy == MemoryPolicy::none)) {
    return fail(ErrorCode::invalid, "the policy {} takes {}", to_string(policy),
                policy == MemoryPolicy::none ? "no nodes" : "at least one node");
  }
  const std::span<const NodeId> all(nodes);
  const HostMemory host = read_host_memory();
  // If the list has other nodes too, the kernel would silently leave this node out.
  if (const auto node = missing(host, all)) {
    return fail(ErrorCode::absent,
                "node {} has no memory that this process may use (it may use {}); name others, or "
                "widen cpuset.mems",
                raw(*node),
                host.allowed_list.empty() ? "those of headrace topo" : host.allowed_list);
  }
  const int error =
      set_thread_policy(policy, policy == MemoryPolicy::preferred ? all.subspan(0, 1) : all);
  switch (error) {
    case 0: return {};
    case EINVAL:
      return fail(ErrorCode::unsupported,
                  "this kernel knows no policy {}; it takes Linux 5.15 for preferred_many and 6.9 "
                  "for weighted_interleave",
                  to_string(policy));
    case EPERM:
    case ENOSYS:
      if (host.nodes.size() == 1) return {};  // its memory is there anyway
      return fail(ErrorCode::denied,
                  "memory cannot be bound to node {}: the kernel refuses set_mempolicy; in a "
                  "container: docker run --cap-add SYS_NICE ...",
                  text_of(all));
    default: return fail_errno(error, "cannot set the memory policy (set_mempolicy)");
  }
}

FreeMemory free_memory() {
  const HostMemory host = read_host_memory();
  FreeMemory free{.nodes = {}, .cgroup = host.cgroup};
  for (const NodeMemory& node : host.nodes) {
    if (node.allowed) free.nodes[node.id] = node.free;
  }
  return free;
}

}  // namespace headrace
