// SPDX-License-Identifier: Apache-2.0
#include "measure/session/available.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "headrace/cpus.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::session {
namespace {

// All nodes whose memory a point uses.
std::vector<NodeId> memory_of(const Point& point) {
  std::vector<NodeId> nodes = point.others;
  for (const char* name :
       {"memory_node", "other_memory_node", "traffic_memory_node", "from", "to", "a", "b", "c"}) {
    const ParameterValue* const value = point.row.parameter(name);
    if (value == nullptr) continue;
    for (const unsigned id : nodes_of(*value)) nodes.push_back(NodeId{id});
  }
  nodes.push_back(point.memory.node);
  return nodes;
}

}  // namespace

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

Machine within_cpu_time(Machine machine, const std::optional<CpuTimeLimit>& limit) {
  if (!limit || usable_cpus().size() <= limit->threads()) return machine;
  for (Node& node : machine.nodes) {
    const CpuSet usable = usable_cpus(&node);
    if (usable.size() <= limit->threads()) continue;
    CpuSet chosen;
    for (const bool second : {false, true}) {
      for (const unsigned cpu : usable) {
        if (chosen.size() == limit->threads()) break;
        const bool shares = std::ranges::any_of(
            chosen, [&](unsigned other) { return share_core(machine, cpu, other); });
        if (shares == second && std::ranges::find(chosen, cpu) == chosen.end())
          chosen.push_back(cpu);
      }
    }
    std::ranges::sort(chosen);
    node.cpus = std::move(chosen);
  }
  return machine;
}

void refuse_too_many_threads(std::vector<Point>& points, const std::optional<CpuTimeLimit>& limit) {
  if (!limit) return;
  for (Point& point : points) {
    const std::uint64_t* const told = point.row.number("threads");
    const CpuSet cpus = parse_cpu_list(point.row.cpus).value_or(CpuSet{});
    const std::size_t threads = std::max<std::size_t>(told == nullptr ? 0 : *told, cpus.size());
    if (threads <= limit->threads() || !point.row.reason.empty()) continue;
    point.row.reason =
        fmt::format("{} threads have {} ({})", threads, limit->words(), limit->text());
    point.row.add_flag("absent");
  }
}

void refuse_forbidden(std::vector<Point>& points, const HostMemory& host) {
  for (Point& point : points) {
    if (!point.row.reason.empty()) continue;
    for (const NodeId id : memory_of(point)) {
      const NodeMemory* node = host.find(id);
      if (node == nullptr || node->allowed) continue;
      point.row.reason =
          fmt::format("the cpuset of this process forbids memory of node {}; it may use {}",
                      raw(id), host.allowed_list);
      point.row.add_flag("absent");
      break;
    }
  }
}

}  // namespace headrace::session
