// SPDX-License-Identifier: Apache-2.0
#include "memory/layout.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "core/check.h"
#include "core/fail.h"
#include "headrace/buffer.h"
#include "host/page_sizes.h"
#include "memory/memory.h"

namespace headrace {
namespace {

Bytes round_up(Bytes bytes, Bytes to) { return to * ((bytes.value + to.value - 1) / to.value); }

std::size_t most_runs(const Layout& layout) {
  return std::max<std::size_t>(kMaxRuns, layout.placement.nodes.size());
}

void cut_runs(Layout& layout, Bytes unit) {
  layout.unit = unit;
  layout.runs = cut_into_runs(layout.stages, unit, layout.placement.nodes);
}

// The kernel policy that distributes pages as the placement asks; nullopt: none does.
std::optional<MemoryPolicy> kernel_policy(const Placement& placement) {
  if (placement.distribution == Distribution::first_touch) {
    return placement.strict ? MemoryPolicy::bind : MemoryPolicy::preferred_many;
  }
  if (placement.nodes.size() < 2) return std::nullopt;
  if (plain_interleave(placement.nodes)) return MemoryPolicy::interleave;
  std::vector<NodeWeight> table;
  for (const auto& [node, weight] : kernel_weights()) table.push_back({node, weight});
  if (same_weights(placement.nodes, table)) return MemoryPolicy::weighted_interleave;
  return std::nullopt;
}

// The pages that the pools lack for the layout; empty: none.
std::string missing_in_pools(const Layout& layout, const HostMemory& host) {
  const Bytes page = layout.pages.map_by;
  const auto free_on = [&](const NodeMemory& node) {
    const auto found = node.free_huge.find(page);
    return found == node.free_huge.end() ? 0 : found->second;
  };
  std::uint64_t free_in_all = 0;
  for (const NodeMemory& node : host.nodes) free_in_all += node.allowed ? free_on(node) : 0;
  for (const auto& [id, bytes] : demand_of(layout, host).nodes) {
    const std::uint64_t free = layout.placement.strict ? free_on(*host.find(id)) : free_in_all;
    const Bytes needed = layout.placement.strict ? bytes : layout.mapped;
    if (needed / page <= free) continue;
    return fmt::format(
        "{} free pages of {} on node {}, {} needed; reserve them with "
        "/sys/devices/system/node/node{}/hugepages/hugepages-{}kB/nr_hugepages",
        free, to_string(page), raw(id), needed / page, raw(id), page / 1_KiB);
  }
  return {};
}

// Sets the policies of all runs; returns 0 or errno of the first failure.
int set_policies(std::byte* memory, const Layout& layout, bool move) {
  if (layout.policy) {
    const int error = set_policy(memory, layout.mapped.value, *layout.policy, layout.ids, move);
    if (error != EINVAL || *layout.policy != MemoryPolicy::preferred_many) return error;
    // Before Linux 5.15 only one node can be preferred.
    return set_policy(memory, layout.mapped.value, MemoryPolicy::preferred, {&layout.ids[0], 1});
  }
  const MemoryPolicy policy =
      layout.placement.strict ? MemoryPolicy::bind : MemoryPolicy::preferred;
  for (const PageRun& run : layout.runs) {
    const int error =
        set_policy(memory + run.offset, run.length, policy, {&layout.ids[run.node], 1}, move);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace

Pages pages_of(PageSize size) {
  switch (size) {
    case PageSize::base: return {size, base_page(), base_page()};
    case PageSize::transparent: return {size, base_page(), huge_page()};
    case PageSize::huge_2m: return {size, 2_MiB, 2_MiB, true};
    case PageSize::huge_1g: return {size, 1_GiB, 1_GiB, true};
  }
  CHECK(false);
  return {};
}

Layout lay_out(const Machine& machine, const Placement& placement, Bytes bytes, PageSize size,
               bool by_kernel) {
  const Pages pages = pages_of(size);
  Layout layout{.machine = machine,
                .placement = placement,
                .pages = pages,
                .mapped = round_up(bytes, pages.map_by),
                .ids = {},
                .runs = {},
                .policy = by_kernel ? kernel_policy(placement) : std::nullopt,
                .stages = {},
                .unit = pages.place_by};
  for (const NodeWeight& each : placement.nodes) layout.ids.push_back(each.node);
  std::vector<std::size_t> all(placement.nodes.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  layout.stages.push_back({std::move(all), layout.mapped});
  if (layout.policy) return layout;
  // At least one run per node.
  cut_runs(layout, choose_unit(layout.mapped, pages.place_by, placement.nodes, most_runs(layout)));
  return layout;
}

Status spill(Layout& layout, const HostMemory& host) {
  HEADRACE_TRY_STATUS(check_read(host));
  const auto space_on = [&](NodeId id) {
    const NodeMemory* node = host.find(id);
    const Bytes free = node == nullptr || !node->allowed ? 0_B : node->free;
    return layout.pages.place_by * (free / layout.pages.place_by);
  };
  std::vector<Bytes> space;
  for (const NodeWeight& each : layout.placement.nodes) space.push_back(space_on(each.node));
  std::vector<NodeId> others;
  std::vector<Bytes> other_space;
  for (const NodeChoice& choice : layout.placement.spill) {
    others.push_back(std::get<NodeId>(choice));
    other_space.push_back(space_on(others.back()));
  }
  const auto& nodes = layout.placement.nodes;
  const auto split_by = [&](Bytes unit) {
    return split_by_space(layout.mapped, unit, nodes, space, other_space);
  };
  Bytes unit = choose_unit(layout.mapped, layout.pages.place_by, nodes, most_runs(layout));
  auto stages = split_by(unit);
  if (!stages) {
    return fail(ErrorCode::exhausted,
                "{} do not fit on nodes {}; free now: {}; ask for less, or let it spill further",
                to_string(layout.mapped), layout.placement.to_text(), host.free_text());
  }
  if (*stages == layout.stages) return {};
  // Turns are short where the heavy nodes are full.
  while (cut_into_runs(*stages, unit, nodes).size() > most_runs(layout)) {
    auto coarser = split_by(unit * 2);
    if (!coarser) break;
    unit = unit * 2;
    stages = std::move(coarser);
  }
  layout.policy.reset();
  layout.stages = *std::move(stages);
  layout.ids.resize(nodes.size());
  layout.ids.insert(layout.ids.end(), others.begin(), others.end());
  cut_runs(layout, unit);
  return {};
}

Demand demand_in_order(const Layout& layout, const HostMemory& host) {
  Demand demand{.nodes = {}, .strict = layout.placement.strict};
  Bytes left = layout.mapped;
  for (const NodeId id : layout.ids) {
    const NodeMemory* node = host.find(id);
    const bool last = id == layout.ids.back();
    const Bytes part = last || node == nullptr ? left : std::min(left, node->free);
    demand.nodes[id] = part;
    left -= part;
  }
  return demand;
}

// Pages that the kernel distributes may begin at any node.
Demand demand_of(const Layout& layout, const HostMemory& host) {
  if (layout.by_first_touch()) return demand_in_order(layout, host);
  Demand demand{.nodes = {}, .strict = layout.placement.strict || layout.spills()};
  const auto bytes = layout.policy ? distributed_shares(layout.mapped, layout.pages.place_by,
                                                        layout.placement.nodes)
                                   : bytes_by_node(layout.runs, layout.ids.size());
  for (std::size_t i = 0; i < layout.ids.size(); ++i) demand.nodes[layout.ids[i]] = bytes[i];
  return demand;
}

Bytes least_bytes(const Layout& layout) {
  const bool alone = layout.placement.nodes.size() == 1 || layout.by_first_touch();
  return alone ? layout.pages.place_by : turn(layout.placement.nodes, layout.pages.place_by);
}

std::string why_unfit(const Layout& layout, const HostMemory& host) {
  if (layout.pages.pool && layout.by_first_touch()) {
    return "pages of a pool are touched at once, so not placed by first touch";
  }
  if (layout.pages.pool) return missing_in_pools(layout, host);
  if (layout.pages.size != PageSize::transparent) return {};
  if (!host.transparent) {
    return "transparent huge pages are off; write madvise into "
           "/sys/kernel/mm/transparent_hugepage/enabled";
  }
  const Bytes least = least_bytes(layout);
  if (layout.mapped < least) {
    return fmt::format("{} are less than {}", to_string(layout.mapped),
                       least == layout.pages.place_by
                           ? fmt::format("a page of {}", to_string(least))
                           : fmt::format("one turn of {} pages over the nodes ({})",
                                         to_string(layout.pages.place_by), to_string(least)));
  }
  return {};
}

Status place_pages(std::byte* memory, Layout& layout, const HostMemory& host, bool move) {
  int error = set_policies(memory, layout, move);
  while (error == ENOMEM && layout.runs.size() > layout.ids.size()) {
    cut_runs(layout, layout.unit * 2);
    error = set_policies(memory, layout, move);
  }
  switch (error) {
    case 0: return {};
    case EPERM:
    case ENOSYS:
      // On a single node everything is bound to it already.
      if (host.nodes.size() == 1) return {};
      return fail(ErrorCode::denied,
                  "this process may not set memory policies (mbind); give the container "
                  "CAP_SYS_NICE or a seccomp profile that allows mbind");
    case ENOMEM:
      return fail(ErrorCode::exhausted,
                  "no mappings left for the runs of this placement; raise vm.max_map_count");
    case EINVAL:
      return fail(ErrorCode::denied,
                  "the kernel refuses a node of this placement; its cpuset allows nodes {}",
                  host.allowed_list);
    default: return fail_errno(error, "cannot place memory (mbind)");
  }
}

void settle(std::byte* memory, const Layout& layout) {
  if (layout.placement.spill.empty()) return;
  for (const PageRun& run : layout.runs) {
    const NodeId home = layout.ids[run.node];
    std::byte* const begin = memory + run.offset;
    const auto now = where({begin, run.length});
    if (!now || std::ranges::all_of(now->pages, [&](auto& each) { return each.first == home; })) {
      continue;
    }
    std::vector<void*> pages;
    for (std::uint64_t at = 0; at < run.length; at += base_page().value) {
      pages.push_back(begin + at);
    }
    (void)move_pages_to(pages, home);
  }
}

std::vector<TouchGroup> touch_groups(const Layout& layout) {
  std::vector<TouchGroup> groups;
  for (const NodeId id : layout.ids) {
    const Node* node = layout.machine.find(id);
    const Node* host = node == nullptr ? nullptr : host_of(layout.machine, *node);
    groups.push_back({host == nullptr ? CpuSet{} : host->cpus, {}});
  }
  for (const PageRun& run : layout.runs) groups[run.node].runs.push_back(run);
  if (!layout.policy) return groups;
  TouchGroup all{{}, {{0, layout.mapped.value, 0}}};
  for (const TouchGroup& group : groups) {
    all.cpus.insert(all.cpus.end(), group.cpus.begin(), group.cpus.end());
  }
  std::ranges::sort(all.cpus);
  all.cpus.erase(std::ranges::unique(all.cpus).begin(), all.cpus.end());
  return {std::move(all)};
}

std::optional<NodeId> calling_node(const Machine& machine) {
  const int cpu = ::sched_getcpu();
  const Node* node = cpu < 0 ? nullptr : machine.node_of_cpu(static_cast<unsigned>(cpu));
  return node == nullptr ? std::nullopt : std::optional(node->id);
}

void leave_out_unusable(Placement& resolved, const HostMemory& host) {
  const auto unusable = [&](NodeId id) {
    const NodeMemory* node = host.find(id);
    return (node == nullptr || !node->allowed) && std::ranges::count(resolved.chosen, id) > 0;
  };
  std::erase_if(resolved.spill,
                [&](const NodeChoice& choice) { return unusable(std::get<NodeId>(choice)); });
  std::vector<NodeWeight> usable = resolved.nodes;
  std::erase_if(usable, [&](const NodeWeight& each) { return unusable(each.node); });
  if (usable.empty() && !resolved.spill.empty()) {
    usable.push_back({std::get<NodeId>(resolved.spill.front()), 1});
    resolved.spill.erase(resolved.spill.begin());
  }
  if (!usable.empty()) resolved.nodes = std::move(usable);
}

Status check_nodes(const Machine& machine, const Placement& placement, const HostMemory& host) {
  std::vector<NodeId> ids;
  for (const NodeWeight& each : placement.nodes) ids.push_back(each.node);
  for (const NodeChoice& each : placement.spill) ids.push_back(std::get<NodeId>(each));
  for (const NodeId id : ids) {
    const NodeMemory* node = host.find(id);
    if (node == nullptr) {
      CpuSet there;
      for (const NodeMemory& each : host.nodes) there.push_back(raw(each.id));
      return fail(ErrorCode::absent,
                  "this host has no memory on node {}, only on {}; the machine is described by {}",
                  raw(id), to_string(there), machine.source);
    }
    if (!node->allowed) {
      return fail(ErrorCode::denied,
                  "node {} is outside the cpuset of this process ({}); widen it (cpuset.mems)",
                  raw(id), host.allowed_list);
    }
  }
  return {};
}

}  // namespace headrace
