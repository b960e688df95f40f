// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "core/text/files.h"
#include "topology/hwloc_handle.h"

namespace headrace {
namespace {

CpuSet cpus_of(hwloc_const_bitmap_t bitmap) {
  CpuSet cpus;
  if (bitmap == nullptr || hwloc_bitmap_weight(bitmap) < 0) return cpus;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    cpus.push_back(static_cast<unsigned>(cpu));
  }
  return cpus;
}

std::optional<unsigned> socket_of(hwloc_topology_t topology, hwloc_obj_t node) {
  hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, node);
  if (package == nullptr || package->os_index == HWLOC_UNKNOWN_INDEX) return std::nullopt;
  return package->os_index;
}

// Assigns the CPUs that own a node. If several nodes have the same CPUs (DRAM and HBM of one tile),
// the kernel assigns them to the first; the other nodes have no CPUs.
void assign_cpus(const std::vector<hwloc_obj_t>& objects, std::vector<NodeFacts>& nodes) {
  hwloc_bitmap_t taken = hwloc_bitmap_alloc();
  hwloc_bitmap_t own = hwloc_bitmap_alloc();
  // Small localities first, so that a node local to all CPUs does not take them from other nodes.
  std::vector<std::size_t> order(objects.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::pair(hwloc_bitmap_weight(objects[i]->cpuset), i);
  });
  for (const std::size_t i : order) {
    hwloc_bitmap_andnot(own, objects[i]->cpuset, taken);
    nodes[i].cpus = cpus_of(own);
    hwloc_bitmap_or(taken, taken, objects[i]->cpuset);
  }
  hwloc_bitmap_free(own);
  hwloc_bitmap_free(taken);
}

std::optional<std::uint64_t> attribute(hwloc_topology_t topology, hwloc_memattr_id_t id,
                                       hwloc_obj_t target, hwloc_obj_t initiator_node) {
  hwloc_location initiator{};
  initiator.type = HWLOC_LOCATION_TYPE_CPUSET;
  initiator.location.cpuset = initiator_node->cpuset;
  hwloc_uint64_t value = 0;
  if (hwloc_memattr_get_value(topology, id, target, &initiator, 0, &value) != 0 || value == 0) {
    return std::nullopt;
  }
  return value;
}

// hwloc has one attribute for both directions if firmware has one.
std::optional<std::uint64_t> either(std::optional<std::uint64_t> own,
                                    std::optional<std::uint64_t> both) {
  return own ? own : both;
}

std::optional<AccessAttributes> access_from(hwloc_topology_t topology, hwloc_obj_t target,
                                            hwloc_obj_t initiator) {
  const auto get = [&](hwloc_memattr_id_t id) {
    return attribute(topology, id, target, initiator);
  };
  const auto latency = get(HWLOC_MEMATTR_ID_LATENCY);
  const auto bandwidth = get(HWLOC_MEMATTR_ID_BANDWIDTH);
  auto read_latency = latency, write_latency = latency;
  auto read_bandwidth = bandwidth, write_bandwidth = bandwidth;
#if HWLOC_API_VERSION >= 0x00020800
  read_latency = either(get(HWLOC_MEMATTR_ID_READ_LATENCY), latency);
  write_latency = either(get(HWLOC_MEMATTR_ID_WRITE_LATENCY), latency);
  read_bandwidth = either(get(HWLOC_MEMATTR_ID_READ_BANDWIDTH), bandwidth);
  write_bandwidth = either(get(HWLOC_MEMATTR_ID_WRITE_BANDWIDTH), bandwidth);
#endif
  if (!read_latency && !write_latency && !read_bandwidth && !write_bandwidth) return std::nullopt;
  const auto time = [](std::uint64_t ns) { return Nanoseconds{static_cast<std::int64_t>(ns)}; };
  const auto rate = [](std::uint64_t mib) {
    return BytesPerSecond{static_cast<double>(mib) * 0x1p20};
  };
  return AccessAttributes{.initiator = NodeId{initiator->os_index},
                          .read_latency = read_latency.transform(time),
                          .write_latency = write_latency.transform(time),
                          .read_bandwidth = read_bandwidth.transform(rate),
                          .write_bandwidth = write_bandwidth.transform(rate),
                          .source = "hwloc"};
}

void read_distances(hwloc_topology_t topology, std::vector<NodeFacts>& nodes) {
  unsigned count = 1;
  hwloc_distances_s* matrix = nullptr;
  if (hwloc_distances_get_by_name(topology, "NUMALatency", &count, &matrix, 0) != 0 || count == 0 ||
      matrix == nullptr) {
    return;
  }
  for (unsigned from = 0; from < matrix->nbobjs; ++from) {
    for (unsigned to = 0; to < matrix->nbobjs; ++to) {
      const auto value = matrix->values[from * matrix->nbobjs + to];
      const auto node = std::ranges::find(nodes, matrix->objs[from]->os_index, &NodeFacts::id);
      if (node == nodes.end() || value == 0 || value > 65535) continue;
      node->distances[NodeId{matrix->objs[to]->os_index}] = static_cast<unsigned>(value);
    }
  }
  hwloc_distances_release(topology, matrix);
}

std::vector<NodeFacts> read_hwloc_nodes(hwloc_topology_t topology) {
  const std::vector<hwloc_obj_t> objects = numa_nodes(topology);
  std::vector<NodeFacts> nodes;
  for (hwloc_obj_t object : objects) {
    NodeFacts node{.id = object->os_index};
    if (object->attr != nullptr && object->attr->numanode.local_memory != 0) {
      node.hwloc_total = Bytes{object->attr->numanode.local_memory};
    }
    if (object->subtype != nullptr) node.hwloc_subtype = object->subtype;
    node.socket = socket_of(topology, object);
    nodes.push_back(std::move(node));
  }
  assign_cpus(objects, nodes);
  for (std::size_t target = 0; target < objects.size(); ++target) {
    for (std::size_t from = 0; from < objects.size(); ++from) {
      if (nodes[from].cpus.empty()) continue;
      if (auto access = access_from(topology, objects[target], objects[from])) {
        nodes[target].access.push_back(*std::move(access));
      }
    }
  }
  read_distances(topology, nodes);
  return nodes;
}

std::vector<CacheLevel> read_hwloc_caches(hwloc_topology_t topology) {
  std::vector<CacheLevel> caches;
  for (hwloc_obj_type_t type = HWLOC_OBJ_L1CACHE; type <= HWLOC_OBJ_L5CACHE;
       type = static_cast<hwloc_obj_type_t>(type + 1)) {
    for (hwloc_obj_t cache = hwloc_get_next_obj_by_type(topology, type, nullptr); cache != nullptr;
         cache = hwloc_get_next_obj_by_type(topology, type, cache)) {
      const CpuSet cpus = cpus_of(cache->cpuset);
      if (cache->attr->cache.size == 0 || cpus.empty()) continue;
      caches.push_back({cache->attr->cache.depth, Bytes{cache->attr->cache.size}, cpus});
    }
  }
  return caches;
}

std::string read_cpu_name(hwloc_topology_t topology) {
  hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* name = package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  return name == nullptr ? "" : name;
}

// The version of the library that created the topology; for XML, of the one that wrote it.
std::string read_version(hwloc_topology_t topology) {
  const char* version = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology), "hwlocVersion");
  return version == nullptr ? "unknown version" : version;
}

}  // namespace

GlobalMutex hwloc_mutex(kRankOfHwloc);

Result<HwlocTopology> load_hwloc(const std::optional<std::filesystem::path>& xml,
                                 bool with_devices) {
  hwloc_topology_t raw_topology = nullptr;
  if (locked_hwloc([&] { return hwloc_topology_init(&raw_topology); }) != 0) {
    return fail(ErrorCode::io, "hwloc cannot start; try `lstopo`");
  }
  HwlocTopology topology(raw_topology);
  // Nodes and CPUs outside this process's cpuset also belong to the machine.
  hwloc_topology_set_flags(topology.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(topology.get(), with_devices ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                                  : HWLOC_TYPE_FILTER_KEEP_NONE);
  std::string text;  // outlives the load
  if (xml) {
    auto read = read_document(*xml);
    if (!read) {
      return fail(read.error().code, "{}; make hwloc XML with `lstopo FILE.xml`",
                  read.error().message);
    }
    text = *std::move(read);
    if (locked_hwloc([&] {
          return hwloc_topology_set_xmlbuffer(topology.get(), text.c_str(),
                                              static_cast<int>(text.size() + 1));
        }) != 0) {
      return fail(ErrorCode::invalid, "'{}' is no hwloc XML; make one with `lstopo FILE.xml`",
                  xml->string());
    }
  }
  if (locked_hwloc([&] { return hwloc_topology_load(topology.get()); }) != 0) {
    if (!xml) return fail(ErrorCode::io, "hwloc cannot read this system; try `lstopo`");
    return fail(ErrorCode::invalid, "hwloc cannot read '{}'; make it again with `lstopo FILE.xml`",
                xml->string());
  }
  return topology;
}

std::vector<hwloc_obj_t> numa_nodes(hwloc_topology_t topology) {
  std::vector<hwloc_obj_t> nodes;
  const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < count; ++i) {
    hwloc_obj_t node =
        hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    if (node != nullptr && node->os_index < 1000) nodes.push_back(node);
  }
  std::ranges::sort(nodes, {}, [](hwloc_obj_t node) { return node->os_index; });
  return nodes;
}

Result<HwlocFacts> read_hwloc(const std::optional<std::filesystem::path>& xml) {
  HEADRACE_TRY(const HwlocTopology topology, load_hwloc(xml, false));
  HwlocFacts facts;
  facts.version = read_version(topology.get());
  facts.nodes = read_hwloc_nodes(topology.get());
  facts.caches = read_hwloc_caches(topology.get());
  facts.cpus = cpus_of(hwloc_topology_get_topology_cpuset(topology.get()));
  facts.cpu_model = read_cpu_name(topology.get());
  facts.this_system = hwloc_topology_is_thissystem(topology.get()) != 0;
  return facts;
}

}  // namespace headrace
