// SPDX-License-Identifier: Apache-2.0
// Machine -> hwloc's XML. The tree is from hwloc itself or written here; the memory attributes are
// written by hwloc.
//
// hwloc's synthetic topologies would avoid the writing, but their levels must be the same
// throughout. The preset cxl-a1000 is different: its CXL nodes belong to one of two sockets.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "core/fail.h"
#include "headrace/machine.h"
#include "topology/hwloc_handle.h"

namespace headrace {
namespace {

// A set of CPUs or nodes in hwloc's notation.
class HwlocSet {
 public:
  HwlocSet() : bitmap_(hwloc_bitmap_alloc()) {}
  explicit HwlocSet(const CpuSet& members) : HwlocSet() {
    for (const unsigned each : members) hwloc_bitmap_set(bitmap_, each);
  }
  HwlocSet(const HwlocSet&) = delete;
  HwlocSet& operator=(const HwlocSet&) = delete;
  ~HwlocSet() { hwloc_bitmap_free(bitmap_); }

  hwloc_bitmap_t get() const { return bitmap_; }
  std::string text() const {
    char* raw_text = nullptr;
    hwloc_bitmap_asprintf(&raw_text, bitmap_);
    std::string copy(raw_text == nullptr ? "0x0" : raw_text);
    std::free(raw_text);
    return copy;
  }

 private:
  hwloc_bitmap_t bitmap_;
};

CpuSet unite(CpuSet one, const CpuSet& other) {
  one.insert(one.end(), other.begin(), other.end());
  std::ranges::sort(one);
  one.erase(std::ranges::unique(one).begin(), one.end());
  return one;
}

bool within(const CpuSet& part, const CpuSet& whole) { return std::ranges::includes(whole, part); }

// A place in the tree: CPUs, and the memories that are local to exactly these CPUs.
struct Place {
  std::string type;  // Machine, Package, Group
  std::optional<unsigned> os_index;
  CpuSet cpus;
  std::vector<const Node*> nodes;
  std::vector<Place> parts;
};

// The CPUs with the best access to a node; empty: unknown.
CpuSet nearest_cpus(const Machine& machine, const Node& node) {
  // Ordered by latency; entries without one follow by bandwidth; entries with neither are last.
  const auto cost = [](const AccessAttributes& access) {
    if (access.read_latency) {
      return std::pair(0, static_cast<double>(access.read_latency->count()));
    }
    return access.read_bandwidth ? std::pair(1, -access.read_bandwidth->value) : std::pair(2, 0.0);
  };
  if (node.access.empty()) return {};
  const auto best = cost(*std::ranges::min_element(node.access, {}, cost));
  CpuSet cpus;
  for (const AccessAttributes& access : node.access) {
    const Node* initiator = machine.find(access.initiator);
    if (initiator != nullptr && cost(access) == best) cpus = unite(cpus, initiator->cpus);
  }
  return cpus;
}

// The innermost place that contains all of `cpus`.
Place& innermost(Place& place, const CpuSet& cpus) {
  for (Place& part : place.parts) {
    if (!cpus.empty() && within(cpus, part.cpus)) return innermost(part, cpus);
  }
  return place;
}

// Inserts a place for `cpus`. A group is inserted only if no other place has exactly these CPUs.
void add_place(Place& root, const std::string& type, std::optional<unsigned> os_index,
               const CpuSet& cpus) {
  Place& around = innermost(root, cpus);
  if (around.cpus == cpus && type == "Group") return;
  around.parts.push_back(
      {.type = type, .os_index = os_index, .cpus = cpus, .nodes = {}, .parts = {}});
}

Place tree_of(const Machine& machine) {
  Place root{.type = "Machine", .os_index = 0, .cpus = {}, .nodes = {}, .parts = {}};
  std::map<unsigned, CpuSet> packages;
  for (const Node& node : machine.nodes) {
    root.cpus = unite(root.cpus, node.cpus);
    if (node.socket) packages[*node.socket] = unite(packages[*node.socket], node.cpus);
  }
  for (const auto& [number, cpus] : packages) {
    if (!cpus.empty()) add_place(root, "Package", number, cpus);
  }
  for (const Node& node : machine.nodes) {
    if (!node.cpus.empty()) add_place(root, "Group", std::nullopt, node.cpus);
  }
  for (const Node& node : machine.nodes) {
    if (!node.byte_addressable()) continue;
    CpuSet cpus = node.cpus.empty() ? nearest_cpus(machine, node) : node.cpus;
    if (cpus.empty() && node.socket) cpus = packages[*node.socket];
    innermost(root, cpus).nodes.push_back(&node);
  }
  return root;
}

std::vector<unsigned> nodes_below(const Place& place) {
  std::vector<unsigned> ids;
  for (const Node* node : place.nodes) ids.push_back(raw(node->id));
  for (const Place& part : place.parts)
    std::ranges::copy(nodes_below(part), std::back_inserter(ids));
  return ids;
}

// Writes the objects of hwloc's format 2; hwloc checks them when it reads them.
class Writer {
 public:
  // `nodes`: those of the enclosing places, which hwloc counts as local too.
  void place(const Place& place, std::vector<unsigned> nodes) {
    const std::vector<unsigned> below = nodes_below(place);
    open(place.type, place.os_index, HwlocSet(place.cpus).text(),
         HwlocSet(below.empty() ? nodes : below).text(), place.type == "Machine" ? "allowed" : "",
         place.type == "Group" ? " kind=\"0\"" : "");
    for (const Node* node : place.nodes) memory(*node, place.cpus);
    for (const Node* node : place.nodes) nodes.push_back(raw(node->id));
    CpuSet rest = place.cpus;
    for (const Place& part : place.parts) {
      this->place(part, nodes);
      std::erase_if(rest, [&](unsigned cpu) { return std::ranges::count(part.cpus, cpu) > 0; });
    }
    for (const unsigned cpu : rest) {
      open("PU", cpu, HwlocSet(CpuSet{cpu}).text(), HwlocSet(nodes).text());
      text_ += "</object>\n";
    }
    text_ += "</object>\n";
  }

  std::string text() const {
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
           "<topology version=\"2.0\">\n" +
           text_ + "</topology>\n";
  }

 private:
  void open(std::string_view type, std::optional<unsigned> os_index, const std::string& cpus,
            const std::string& nodes, std::string_view allowed = "", std::string_view more = "") {
    text_ += fmt::format("<object type=\"{}\"", type);
    if (os_index) text_ += fmt::format(" os_index=\"{}\"", *os_index);
    text_ += fmt::format(
        " gp_index=\"{}\" cpuset=\"{}\" complete_cpuset=\"{}\" nodeset=\"{}\" "
        "complete_nodeset=\"{}\"",
        ++count_, cpus, cpus, nodes, nodes);
    if (!allowed.empty()) {
      text_ += fmt::format(" allowed_cpuset=\"{}\" allowed_nodeset=\"{}\"", cpus, nodes);
    }
    text_ += fmt::format("{}>\n", more);
  }

  void memory(const Node& node, const CpuSet& cpus) {
    open("NUMANode", raw(node.id), HwlocSet(cpus).text(), HwlocSet(CpuSet{raw(node.id)}).text(), "",
         fmt::format(" local_memory=\"{}\"", node.capacity ? node.capacity->value : 0));
    text_ += "</object>\n";
  }

  std::string text_;
  int count_ = 0;
};

Result<HwlocTopology> build_hwloc(const Machine& machine) {
  const Place root = tree_of(machine);
  if (root.cpus.empty() || nodes_below(root).empty()) {
    return fail(ErrorCode::invalid, "machine '{}' names no CPUs; hwloc knows no such machine",
                machine.name);
  }
  Writer writer;
  writer.place(root, {});
  const std::string text = writer.text();
  hwloc_topology_t raw_topology = nullptr;
  if (locked_hwloc([&] { return hwloc_topology_init(&raw_topology); }) != 0) {
    return fail(ErrorCode::io, "hwloc cannot start");
  }
  HwlocTopology topology(raw_topology);
  const int loaded = locked_hwloc([&] {
    const int length = static_cast<int>(text.size() + 1);
    return hwloc_topology_set_xmlbuffer(topology.get(), text.c_str(), length) != 0
               ? -1
               : hwloc_topology_load(topology.get());
  });
  if (loaded != 0) {
    return fail(ErrorCode::invalid,
                "hwloc does not take machine '{}'; do CPUs belong to one node each?", machine.name);
  }
  return topology;
}

void set_subtype(hwloc_obj_t object, const Node& node) {
  const char* subtype = node.kind == NodeKind::hbm   ? "HBM"
                        : node.kind == NodeKind::cxl ? "CXL-DRAM"
                        : node.kind == NodeKind::gpu ? "GPUMemory"
                                                     : "DRAM";
  // hwloc frees it with the topology, so it must come from malloc.
  std::free(object->subtype);
  object->subtype = strdup(subtype);
}

// The known values per initiator: measured ones if there are any, else rated ones.
std::map<NodeId, AccessAttributes> known_access(const Node& node) {
  std::map<NodeId, AccessAttributes> found;
  for (const bool measured : {true, false}) {
    for (const AccessAttributes& each : node.access) {
      if (each.measured != measured) continue;
      AccessAttributes& known = found[each.initiator];
      if (!known.read_latency) known.read_latency = each.read_latency;
      if (!known.write_latency) known.write_latency = each.write_latency;
      if (!known.read_bandwidth) known.read_bandwidth = each.read_bandwidth;
      if (!known.write_bandwidth) known.write_bandwidth = each.write_bandwidth;
    }
  }
  return found;
}

// Attributes for reads and writes. Programs that ask hwloc for one number get the mean of the known
// values.
struct Attribute {
  hwloc_memattr_id_t read, write, both;
};
constexpr Attribute kLatency{HWLOC_MEMATTR_ID_READ_LATENCY, HWLOC_MEMATTR_ID_WRITE_LATENCY,
                             HWLOC_MEMATTR_ID_LATENCY};
constexpr Attribute kBandwidth{HWLOC_MEMATTR_ID_READ_BANDWIDTH, HWLOC_MEMATTR_ID_WRITE_BANDWIDTH,
                               HWLOC_MEMATTR_ID_BANDWIDTH};

void set_attribute(hwloc_topology_t topology, hwloc_obj_t target, const HwlocSet& initiator,
                   const Attribute& attribute, std::optional<double> read,
                   std::optional<double> write) {
  hwloc_location from{};
  from.type = HWLOC_LOCATION_TYPE_CPUSET;
  from.location.cpuset = initiator.get();
  const auto set = [&](hwloc_memattr_id_t id, std::optional<double> value) {
    if (!value) return;
    hwloc_memattr_set_value(topology, id, target, &from, 0,
                            static_cast<hwloc_uint64_t>(std::llround(*value)));
  };
  set(attribute.read, read);
  set(attribute.write, write);
  set(attribute.both, read && write ? std::optional((*read + *write) / 2) : read ? read : write);
}

void add_attributes(hwloc_topology_t topology, hwloc_obj_t target, const Machine& machine,
                    const Node& node) {
  const auto nanoseconds = [](Nanoseconds time) { return static_cast<double>(time.count()); };
  const auto mebibytes = [](BytesPerSecond rate) { return rate.value / 0x1p20; };
  for (const auto& [from, access] : known_access(node)) {
    const Node* initiator = machine.find(from);
    if (initiator == nullptr || initiator->cpus.empty()) continue;
    const HwlocSet cpus(initiator->cpus);
    set_attribute(topology, target, cpus, kLatency, access.read_latency.transform(nanoseconds),
                  access.write_latency.transform(nanoseconds));
    set_attribute(topology, target, cpus, kBandwidth, access.read_bandwidth.transform(mebibytes),
                  access.write_bandwidth.transform(mebibytes));
  }
}

}  // namespace

Result<std::string> to_hwloc_xml(const Machine& machine) {
  HEADRACE_TRY(const HwlocTopology topology, machine.source == "discovered"
                                                 ? load_hwloc(std::nullopt, true)
                                                 : build_hwloc(machine));
  for (hwloc_obj_t object : numa_nodes(topology.get())) {
    const Node* node = machine.find(NodeId{object->os_index});
    if (node == nullptr || !node->byte_addressable()) continue;
    set_subtype(object, *node);
    add_attributes(topology.get(), object, machine, *node);
  }
  char* buffer = nullptr;
  int length = 0;
  if (locked_hwloc([&] {
        return hwloc_topology_export_xmlbuffer(topology.get(), &buffer, &length, 0);
      }) != 0) {
    return fail(ErrorCode::io, "hwloc cannot export its XML; try `lstopo FILE.xml`");
  }
  std::string text(buffer);
  hwloc_free_xmlbuffer(topology.get(), buffer);
  return text;
}

}  // namespace headrace
