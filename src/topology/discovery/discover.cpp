// SPDX-License-Identifier: Apache-2.0
// Machine::discover: gathers the facts, then decides.
//
// If two sources have a fact, the nearer one counts: sysfs for the kernel's own knowledge (CPUs,
// distances, HMAT), hwloc for the rest. hwloc XML and the running system's sysfs describe different
// machines, so with XML sysfs gives no memory facts. With another sysfs and no XML, hwloc is not
// asked, since it would describe the running system.

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "backend/cuda/cuda.h"
#include "core/fail.h"
#include "topology/discovery/capacity.h"
#include "topology/discovery/facts.h"
#include "topology/discovery/kinds.h"
#include "topology/discovery/links.h"
#include "topology/topology.h"

namespace headrace {
namespace {

// All facts about the host, before decisions.
struct HostFacts {
  std::vector<NodeFacts> nodes;
  std::vector<CacheLevel> caches;
  std::optional<Bytes> total;  // MemTotal of /proc/meminfo
  std::string cpu_model;
  std::string hwloc;  // its version and source, or why it was not asked
  std::vector<std::string> warnings;
};

// The sources of the description.
struct Sources {
  bool own_sysfs;     // the running system's
  bool sysfs_memory;  // sysfs describes this machine's memory
  bool hwloc;
};

Sources sources_of(const DiscoverOptions& options) {
  const bool own = options.sysfs == "/sys" && options.procfs == "/proc";
  return {.own_sysfs = own,
          .sysfs_memory = !own || !options.hwloc_xml,
          .hwloc = own || options.hwloc_xml.has_value()};
}

// Fills a node's missing facts from hwloc's description of it.
void complete(NodeFacts& node, const NodeFacts& from_hwloc) {
  node.hwloc_total = from_hwloc.hwloc_total;
  node.hwloc_subtype = from_hwloc.hwloc_subtype;
  if (from_hwloc.socket) node.socket = from_hwloc.socket;
  if (node.distances.empty()) node.distances = from_hwloc.distances;
  for (const AccessAttributes& access : from_hwloc.access) {
    const bool known = std::ranges::any_of(
        node.access, [&](const auto& each) { return each.initiator == access.initiator; });
    if (!known) node.access.push_back(access);
  }
}

void merge_hwloc(HwlocFacts hwloc, HostFacts& host) {
  if (host.nodes.empty()) {
    host.nodes = std::move(hwloc.nodes);
  } else {
    for (NodeFacts& node : host.nodes) {
      const auto same = std::ranges::find(hwloc.nodes, node.id, &NodeFacts::id);
      if (same != hwloc.nodes.end()) complete(node, *same);
    }
  }
  if (!hwloc.caches.empty()) host.caches = std::move(hwloc.caches);
  if (host.cpu_model.empty()) host.cpu_model = hwloc.cpu_model;
}

Status ask_hwloc(const DiscoverOptions& options, HostFacts& host) {
  if (!sources_of(options).hwloc) {
    host.hwloc = "not asked: sysfs is redirected";
    return {};
  }
  auto hwloc = read_hwloc(options.hwloc_xml);
  if (!hwloc && options.hwloc_xml) return Unexpected(std::move(hwloc).error());
  if (!hwloc) {
    host.hwloc = "failed";
    host.warnings.push_back(hwloc.error().message);
    return {};
  }
  if (!options.hwloc_xml && !hwloc->this_system) {
    host.hwloc = "passed over";
    host.warnings.push_back("hwloc shows another machine (is HWLOC_XMLFILE set?): passed over");
    return {};
  }
  host.hwloc = hwloc->version;
  if (options.hwloc_xml) host.hwloc += fmt::format(", {}", *options.hwloc_xml);
  merge_hwloc(*std::move(hwloc), host);
  return {};
}

// Nodes whose memory is all offline cannot hold data.
void drop_empty_nodes(HostFacts& host) {
  std::erase_if(host.nodes, [&](const NodeFacts& node) {
    const bool empty = node.cpus.empty() && node.meminfo_total == Bytes{0};
    if (empty) {
      host.warnings.push_back(fmt::format(
          "node {} has no memory online: left out; `daxctl online-memory` may bring it", node.id));
    }
    return empty;
  });
}

Result<HostFacts> gather(const DiscoverOptions& options) {
  HostFacts host;
  if (sources_of(options).sysfs_memory) {
    host.nodes = read_nodes(options.sysfs);
    host.caches = read_caches(options.sysfs);
    host.total = read_total_memory(options.procfs);
    host.cpu_model = read_cpu_model(options.procfs).value_or("");
  }
  HEADRACE_TRY_STATUS(ask_hwloc(options, host));
  if (host.nodes.empty()) {
    host.nodes.push_back({.id = 0, .cpus = read_online_cpus(options.sysfs, options.procfs)});
    host.warnings.push_back(
        "no NUMA information (kernel without CONFIG_NUMA, or /sys hidden): all "
        "memory is taken for one node");
  }
  drop_empty_nodes(host);
  if (host.nodes.empty()) {
    return fail(ErrorCode::absent,
                "no memory node is online; bring one online with `daxctl online-memory`");
  }
  return host;
}

const AccessAttributes* access_from(const NodeFacts& node, NodeId initiator) {
  const auto found = std::ranges::find(node.access, initiator, &AccessAttributes::initiator);
  return found == node.access.end() ? nullptr : &*found;
}

// The node's fastest access rated by firmware, relative to the same initiator's own memory.
std::optional<KindEvidence::Rated> best_rating(const HostFacts& host, const NodeFacts& node) {
  std::optional<KindEvidence::Rated> best;
  for (const AccessAttributes& access : node.access) {
    const auto owner = std::ranges::find_if(host.nodes, [&](const NodeFacts& each) {
      return NodeId{each.id} == access.initiator && !each.cpus.empty();
    });
    if (owner == host.nodes.end() || owner->id == node.id) continue;
    const AccessAttributes* local = access_from(*owner, access.initiator);
    if (local == nullptr) continue;
    if (best && best->bandwidth >= access.read_bandwidth) continue;
    best = KindEvidence::Rated{.initiator = access.initiator,
                               .bandwidth = access.read_bandwidth,
                               .local_bandwidth = local->read_bandwidth,
                               .latency = access.read_latency,
                               .local_latency = local->read_latency,
                               .source = access.source};
  }
  return best;
}

KindEvidence::Tier compare_tier(const HostFacts& host, const NodeFacts& node) {
  std::optional<unsigned> cpu_tier;
  for (const NodeFacts& each : host.nodes) {
    if (!each.cpus.empty() && each.tier)
      cpu_tier = std::min(cpu_tier.value_or(*each.tier), *each.tier);
  }
  if (!cpu_tier || !node.tier) return KindEvidence::Tier::unknown;
  if (*node.tier == *cpu_tier) return KindEvidence::Tier::same;
  return *node.tier < *cpu_tier ? KindEvidence::Tier::faster : KindEvidence::Tier::slower;
}

void find_nearest(const HostFacts& host, const NodeFacts& node, KindEvidence& evidence) {
  for (const NodeFacts& each : host.nodes) {
    const auto distance = node.distances.find(NodeId{each.id});
    if (each.cpus.empty() || distance == node.distances.end()) continue;
    if (evidence.distance && *evidence.distance <= distance->second) continue;
    evidence.nearest = NodeId{each.id};
    evidence.distance = distance->second;
  }
}

// The sum of all nodes of a node's package; nothing if one is unknown.
std::optional<Bytes> memory_of_package(const HostFacts& host, const NodeFacts& node) {
  Bytes sum;
  for (const NodeFacts& each : host.nodes) {
    if (each.socket != node.socket) continue;
    const auto bytes = each.meminfo_total ? each.meminfo_total : each.hwloc_total;
    if (!bytes) return std::nullopt;
    sum += *bytes;
  }
  return sum;
}

KindEvidence evidence_for(const HostFacts& host, const NodeFacts& node,
                          const std::map<unsigned, Override>& overrides, const Machine& machine) {
  KindEvidence evidence{.node = NodeId{node.id},
                        .has_cpus = !node.cpus.empty(),
                        .dax_device = node.dax_device,
                        .cxl_region = node.cxl_region,
                        .pmem_bus = node.pmem_bus,
                        .hwloc_subtype = node.hwloc_subtype,
                        .rated = best_rating(host, node),
                        .tier = compare_tier(host, node)};
  if (const auto override = overrides.find(node.id); override != overrides.end()) {
    evidence.override_kind = override->second.kind;
    evidence.override_source = override->second.source;
  }
  for (const NodeFacts& each : host.nodes) {
    ++(each.cpus.empty() ? evidence.cpu_less_nodes : evidence.cpu_nodes);
  }
  evidence.side_cached = node.side_cache.has_value();
  evidence.is_guest = is_virtual(machine);
  if (const auto hbm = package_hbm(host.cpu_model)) {
    evidence.hbm_cpu_model = host.cpu_model;
    evidence.package_hbm = hbm->size;
    evidence.hbm_alone = hbm->alone;
    evidence.package_memory = memory_of_package(host, node);
  }
  find_nearest(host, node, evidence);
  return evidence;
}

// A node without CPUs and without a package belongs to the package of its nearest CPUs, if they are
// all in one.
std::optional<unsigned> socket_of(const HostFacts& host, const NodeFacts& node) {
  if (node.socket || !node.cpus.empty()) return node.socket;
  std::optional<unsigned> least;
  std::set<std::optional<unsigned>> sockets;
  for (const NodeFacts& each : host.nodes) {
    const auto distance = node.distances.find(NodeId{each.id});
    if (each.cpus.empty() || distance == node.distances.end()) continue;
    if (least && distance->second > *least) continue;
    if (!least || distance->second < *least) sockets.clear();
    least = distance->second;
    sockets.insert(each.socket);
  }
  return sockets.size() == 1 ? *sockets.begin() : std::nullopt;
}

void add_memory(const HostFacts& host, const std::map<unsigned, Override>& overrides,
                Machine& machine) {
  Capacities capacities = choose_capacities(host.nodes, host.total);
  for (std::size_t i = 0; i < host.nodes.size(); ++i) {
    const NodeFacts& facts = host.nodes[i];
    KindDecision decision = decide_kind(evidence_for(host, facts, overrides, machine));
    Node node{.id = NodeId{facts.id},
              .kind = decision.kind,
              .reason = std::move(decision.reason),
              .name = fmt::format("node {}", facts.id),
              .capacity = capacities.nodes[i].bytes,
              .capacity_source = capacities.nodes[i].source,
              .cpus = facts.cpus,
              .access = facts.access,
              .distances = facts.distances,
              .socket = socket_of(host, facts),
              .side_cache = facts.side_cache};
    machine.nodes.push_back(std::move(node));
  }
  std::ranges::move(capacities.warnings, std::back_inserter(machine.warnings));
}

// Online CPUs run from some memory. Without this check every placement would fail later, with a
// message that does not name the cause.
Status check_memory(const Machine& machine) {
  const auto none = [](const Node& node) { return node.capacity == Bytes{0}; };
  const auto cpus =
      std::ranges::find_if(machine.nodes, [](const Node& node) { return !node.cpus.empty(); });
  if (cpus == machine.nodes.end() || !std::ranges::all_of(machine.nodes, none)) return {};
  return fail(ErrorCode::io,
              "no memory found: node {} has CPUs online, and the capacity of every node is 0 ({}); "
              "compare MemTotal of /proc/meminfo and of /sys/devices/system/node/node{}/meminfo",
              raw(cpus->id), cpus->capacity_source, raw(cpus->id));
}

// Warns about the basis of kinds and distances if there are nodes without CPUs, and no node is
// rated. For firmware without a SLIT the kernel makes up distances: 10, and 20 to all other nodes
// (REMOTE_DISTANCE in the kernel's linux/topology.h).
void tell_missing_tables(Machine& machine) {
  const auto rated = [](const Node& node) { return !node.access.empty(); };
  const auto bare = [](const Node& node) { return node.cpus.empty(); };
  if (std::ranges::none_of(machine.nodes, bare) || std::ranges::any_of(machine.nodes, rated)) {
    return;
  }
  std::set<unsigned> others;
  for (const Node& node : machine.nodes) {
    for (const auto& [id, distance] : node.distances) {
      if (id != node.id) others.insert(distance);
    }
  }
  const bool made_up = machine.nodes.size() > 2 && others == std::set<unsigned>{20};
  machine.warnings.push_back(
      fmt::format("no HMAT: the firmware rates no memory, so kinds rest on other evidence; "
                  "{}`headrace measure` measures the speed of each",
                  others.empty() || made_up ? "without a SLIT distances are unknown; " : ""));
}

// References to left-out nodes would be dangling.
void drop_dangling(Machine& machine) {
  const auto gone = [&](NodeId id) { return machine.find(id) == nullptr; };
  for (Node& node : machine.nodes) {
    std::erase_if(node.distances, [&](const auto& each) { return gone(each.first); });
    std::erase_if(node.access, [&](const auto& each) { return gone(each.initiator); });
  }
}

std::optional<NodeId> nearest_of(const std::vector<std::filesystem::path>& functions) {
  const auto node = functions.empty() ? std::nullopt : read_numa_node(functions.front());
  return node ? std::optional(NodeId{*node}) : std::nullopt;
}

std::vector<AttachedNode> find_cxl(const DiscoverOptions& options, const HostFacts& host) {
  std::vector<AttachedNode> found;
  for (const NodeFacts& node : host.nodes) {
    if (node.cxl_region.empty()) continue;
    auto functions = functions_of_region(options.sysfs, node.cxl_region);
    const auto near = nearest_of(functions);
    found.push_back({NodeId{node.id}, LinkKind::cxl, std::move(functions), near});
  }
  return found;
}

Status add_storage(const DiscoverOptions& options, Machine& machine,
                   std::vector<AttachedNode>& attached) {
  std::uint32_t next = kFirstStorageNode;
  for (const std::string& path : options.storage) {
    HEADRACE_TRY(StorageFacts facts, find_storage(path, options.sysfs, options.procfs));
    const bool known = std::ranges::any_of(machine.nodes, [&](const Node& node) {
      return node.kind == NodeKind::storage && node.name == facts.name;
    });
    if (known) continue;
    auto functions = functions_of_disk(facts.device);
    if (!functions.empty()) {
      const auto near = nearest_of(functions);
      attached.push_back({NodeId{next}, LinkKind::pcie, std::move(functions), near});
    }
    machine.nodes.push_back({.id = NodeId{next++},
                             .kind = NodeKind::storage,
                             .reason = std::move(facts.reason),
                             .name = std::move(facts.name),
                             .capacity = facts.capacity,
                             .capacity_source = std::move(facts.capacity_source),
                             .path = std::move(facts.path)});
  }
  return {};
}

// A GPU's memory that is a NUMA node already exists, as the kernel shows it.
void describe_as_gpu(GpuFacts& gpu, Node& node) {
  node.kind = NodeKind::gpu;
  node.reason = fmt::format("the memory of {} ({})", gpu.name, gpu.reason);
  node.gpu = std::move(gpu.driver);
}

void add_gpus(const DiscoverOptions& options, Machine& machine,
              std::vector<AttachedNode>& attached) {
  std::vector<GpuFacts> found = find_gpus(options.sysfs);
  if (options.gpu_driver && sources_of(options).own_sysfs && !cuda::library_name().empty()) {
    found = ask_gpu_driver(std::move(found), options.sysfs, machine.warnings);
  }
  std::uint32_t next = kFirstGpuNode;
  for (GpuFacts& gpu : found) {
    const Node* near = gpu.node ? machine.find(NodeId{*gpu.node}) : nullptr;
    if (gpu.driver && near != nullptr) gpu.driver->host = near->id;
    const auto numa = !gpu.numa_node
                          ? machine.nodes.end()
                          : std::ranges::find(machine.nodes, NodeId{*gpu.numa_node}, &Node::id);
    const std::optional<NodeId> at = near == nullptr ? std::nullopt : std::optional(near->id);
    if (numa != machine.nodes.end()) {
      attached.push_back({numa->id, LinkKind::nvlink, {}, at});
      describe_as_gpu(gpu, *numa);
      continue;
    }
    auto functions = functions_at(options.sysfs, gpu.pci);
    if (!functions.empty()) {
      attached.push_back({NodeId{next}, LinkKind::pcie, std::move(functions), at});
    }
    machine.nodes.push_back({.id = NodeId{next++},
                             .kind = NodeKind::gpu,
                             .reason = std::move(gpu.reason),
                             .name = std::move(gpu.name),
                             .capacity = gpu.capacity,
                             .capacity_source = gpu.capacity ? "CUDA driver" : "unknown",
                             .socket = near == nullptr ? std::nullopt : near->socket,
                             .gpu = std::move(gpu.driver)});
  }
}

void add_engine(Machine& machine, EngineKind kind, std::string name, NodeId home,
                std::string reason) {
  machine.engines.push_back({.id = EngineId{static_cast<std::uint32_t>(machine.engines.size())},
                             .kind = kind,
                             .name = std::move(name),
                             .home = home,
                             .reason = std::move(reason)});
}

std::optional<std::string> environment(const std::optional<std::string>& given, const char* name) {
  if (given) return given;
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void add_dsa(const DiscoverOptions& options, Machine& machine) {
  const std::string devices =
      environment(options.dsa, "HEADRACE_DSA_SYSFS").value_or(options.sysfs + "/bus/dsa/devices");
  for (const DsaFacts& dsa : find_dsa(devices)) {
    if (!dsa.enabled || dsa.work_queues == 0) {
      machine.warnings.push_back(
          fmt::format("{} is there but has no enabled work queue for users: configure one with "
                      "`accel-config load-config -e`",
                      dsa.name));
      continue;
    }
    const Node* home = dsa.node ? machine.find(NodeId{*dsa.node}) : nullptr;
    std::string where = home == nullptr ? "node unknown, taken for the first"
                                        : fmt::format("at node {}", raw(home->id));
    if (home == nullptr) home = &machine.nodes.front();
    add_engine(machine, EngineKind::dsa, dsa.name, home->id,
               fmt::format("{} work queue{} for users, {}", dsa.work_queues,
                           dsa.work_queues == 1 ? "" : "s", where));
  }
}

void add_engines(const DiscoverOptions& options, Machine& machine) {
  std::size_t memories = 0;
  std::size_t gpus = 0;
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable()) ++memories;
    if (!node.byte_addressable() || node.cpus.empty()) continue;
    add_engine(machine, EngineKind::cpu, fmt::format("cpu{}", raw(node.id)), node.id,
               fmt::format("{} CPU{} of node {}", node.cpus.size(),
                           node.cpus.size() == 1 ? "" : "s", raw(node.id)));
  }
  for (const Node* node : machine.of_kind(NodeKind::storage)) {
    add_engine(machine, EngineKind::ssd, node->name, node->id, "reads and writes of its files");
  }
  for (const Node* node : machine.of_kind(NodeKind::gpu)) {
    if (!node->gpu) continue;
    const unsigned engines = node->gpu->copy_engines;
    add_engine(machine, EngineKind::gpu, fmt::format("gpu{}", gpus++), node->id,
               fmt::format("{} copy engine{}", engines, engines == 1 ? "" : "s"));
  }
  add_dsa(options, machine);
  if (memories > 1 && sources_of(options).sysfs_memory && can_migrate_pages(options.procfs)) {
    add_engine(machine, EngineKind::migrate, "kernel", machine.nodes.front().id,
               "the kernel counts migrated pages in /proc/vmstat");
  }
}

Status check_overrides(const std::map<unsigned, Override>& overrides, const HostFacts& host) {
  for (const auto& [id, override] : overrides) {
    if (std::ranges::find(host.nodes, id, &NodeFacts::id) != host.nodes.end()) continue;
    CpuSet ids;
    for (const NodeFacts& node : host.nodes) ids.push_back(node.id);
    return fail(ErrorCode::absent,
                "{} names node {}, but the memory nodes are {}; write it like {}", override.source,
                id, to_string(ids),
                override.source == "HEADRACE_NODES" ? "8-15=hbm,2=cxl" : "8-15");
  }
  return {};
}

void add_provenance(const DiscoverOptions& options, const HostFacts& host, Machine& machine) {
  const bool other = options.hwloc_xml && sources_of(options).own_sysfs;
  const auto hostname = read_line(options.procfs + "/sys/kernel/hostname");
  machine.name = other ? std::filesystem::path(*options.hwloc_xml).stem().string()
                       : hostname.value_or("unnamed");
  machine.source = sources_of(options).own_sysfs && !other ? "discovered" : "discovered elsewhere";
  machine.provenance["hwloc"] = host.hwloc;
  if (!host.cpu_model.empty()) machine.provenance["cpu"] = host.cpu_model;
  if (!other && read_is_virtual(options.sysfs, options.procfs)) {
    machine.provenance["hypervisor"] = "yes";
  }
  const std::string system = read_system(options.sysfs);
  if (!system.empty() && !other) machine.provenance["system"] = system;
  const auto kernel = read_line(options.procfs + "/sys/kernel/osrelease");
  if (kernel && !other) machine.provenance["kernel"] = *kernel;
  machine.description = host.cpu_model;
}

}  // namespace

Result<Machine> Machine::discover(const DiscoverOptions& options) {
  HEADRACE_TRY(const auto overrides,
               parse_overrides(environment(options.headrace_nodes, "HEADRACE_NODES"),
                               environment(options.memkind_hbw_nodes, "MEMKIND_HBW_NODES")));
  HEADRACE_TRY(HostFacts host, gather(options));
  HEADRACE_TRY_STATUS(check_overrides(overrides, host));

  Machine machine;
  machine.warnings = host.warnings;
  add_provenance(options, host, machine);
  machine.caches = host.caches;
  add_memory(host, overrides, machine);
  HEADRACE_TRY_STATUS(check_memory(machine));
  drop_dangling(machine);
  tell_missing_tables(machine);
  std::vector<AttachedNode> attached = find_cxl(options, host);
  HEADRACE_TRY_STATUS(add_storage(options, machine, attached));
  if (sources_of(options).sysfs_memory) add_gpus(options, machine, attached);
  machine.links = find_links(machine, attached);
  add_engines(options, machine);
  return machine;
}

}  // namespace headrace
