// SPDX-License-Identifier: Apache-2.0
// Machine and what it is made of: plain data, copied at the border.
#include "headrace/overview.h"

#include "document.h"
#include "handles.h"
#include "record.h"
#include "topology/topology.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

void bind_nodes(nb::module_& m) {
  Record<AccessAttributes>(
      m, "AccessAttributes",
      "Latency and bandwidth of a node for one initiator: rated by firmware, or measured.")
      .field("initiator", &AccessAttributes::initiator, "The node with the CPUs.")
      .field("read_latency", &AccessAttributes::read_latency, "Seconds; None when unknown.")
      .field("write_latency", &AccessAttributes::write_latency, "Seconds; None when unknown.")
      .field("read_bandwidth", &AccessAttributes::read_bandwidth,
             "Bytes per second; None when unknown.")
      .field("write_bandwidth", &AccessAttributes::write_bandwidth,
             "Bytes per second; None when unknown.")
      .field("source", &AccessAttributes::source, "The source of these numbers.")
      .field("measured", &AccessAttributes::measured, "Measured with all CPUs of the initiator.");
  Record<GpuAttributes>(m, "GpuAttributes", "Facts about a GPU from its driver.")
      .field("pci", &GpuAttributes::pci, "Its PCI address; empty when unknown.")
      .field("uuid", &GpuAttributes::uuid, "32 hexadecimal digits; empty when unknown.")
      .field("paradigm", &GpuAttributes::paradigm, "How far CPUs and GPU see each other's memory.")
      .field("copy_engines", &GpuAttributes::copy_engines,
             "The number of copies that may be in flight at the same time.")
      .field("host", &GpuAttributes::host, "The nearest node of the host; None when unknown.")
      .field("emulated", &GpuAttributes::emulated, "Made of software: its speed says nothing.");
  Record<MemorySideCache>(
      m, "MemorySideCache",
      "A cache in front of a node's memory: HBM in cache mode, which is not a node of its own.")
      .field("size", &MemorySideCache::size, "Bytes.")
      .field("line", &MemorySideCache::line, "Bytes; None when unknown.")
      .field("indexing", &MemorySideCache::indexing, "direct-mapped, indexed; empty when unknown.")
      .field("write_policy", &MemorySideCache::write_policy,
             "write-back, write-through; empty when unknown.");
  Record<Node>(m, "Node", "One memory with one location.")
      .field("id", &Node::id, "The kernel's NUMA number; storage from 1000, GPUs from 2000.")
      .field("kind", &Node::kind, "The kind of memory.")
      .field("reason", &Node::reason, "Why this kind: the evidence.")
      .field("name", &Node::name, "Its name for people.")
      .field("capacity", &Node::capacity, "Bytes; None when unknown.")
      .field("capacity_source", &Node::capacity_source, "Where the capacity was read.")
      .field("cpus", &Node::cpus, "Local CPUs; empty for a CPU-less node.")
      .field("access", &Node::access, "Latencies and bandwidths per initiator.")
      .field("distances", &Node::distances, "SLIT distances to memory nodes; 10 is local.")
      .field("path", &Node::path, "Storage: a directory on it.")
      .field("gpu", &Node::gpu,
             "Facts about a GPU; None for other nodes, and if no driver was asked.")
      .field("side_cache", &Node::side_cache, "A cache in front of its memory; None without one.")
      .type()
      .def_prop_ro("byte_addressable", &Node::byte_addressable,
                   "Loads and stores of a CPU reach it.");
}

void bind_parts(nb::module_& m) {
  Record<CacheLevel>(m, "CacheLevel", "A data or unified CPU cache and the CPUs that share it.")
      .field("level", &CacheLevel::level, "1, 2, 3.")
      .field("size", &CacheLevel::size, "Bytes.")
      .field("cpus", &CacheLevel::cpus, "The CPUs that share it.");
  Record<Engine>(m, "Engine", "Something that can copy.")
      .field("id", &Engine::id, "Its place in Machine.engines.")
      .field("kind", &Engine::kind, "The kind of engine.")
      .field("name", &Engine::name, "Its name for people.")
      .field("home", &Engine::home, "The node it sits at.")
      .field("reason", &Engine::reason, "How it was found.");
  Record<Link>(m, "Link", "A link between nodes. All traffic across it shares its limits.")
      .field("kind", &Link::kind, "The kind of link.")
      .field("a", &Link::a, "The nodes at one end.")
      .field("b", &Link::b, "The nodes at the other end.")
      .field("reason", &Link::reason,
             "How the link was found, and which of its properties are unknown.")
      .field("each_way", &Link::each_way, "Bytes per second in a direction; None when unknown.")
      .field("each_way_source", &Link::each_way_source, "The source of these numbers.")
      .field("both_ways", &Link::both_ways,
             "Bytes per second in both directions at once; None when unknown.")
      .field("both_ways_source", &Link::both_ways_source, "The source of these numbers.")
      .field("latency", &Link::latency, "Seconds that it adds to an access; None when unknown.")
      .field("latency_source", &Link::latency_source, "The source of these numbers.");
  Record<GatherLimit>(m, "GatherLimit",
                      "The limit for many small copies: within it, a GPU's kernel makes them "
                      "instead of its copy engines.")
      .field("bytes", &GatherLimit::bytes, "Bytes of each copy, at most.")
      .field("count", &GatherLimit::count, "Number of copies, at least.");
  Record<CopyRate>(m, "CopyRate", "A measured cost of copying: time = latency + bytes / bandwidth.")
      .field("engine", &CopyRate::engine, "The id of the engine.")
      .field("from_node", &CopyRate::from, "Where the bytes are.")
      .field("to_node", &CopyRate::to, "Where they go.")
      .field("latency", &CopyRate::latency, "Seconds.")
      .field("bandwidth", &CopyRate::bandwidth, "Bytes per second.")
      .field("source", &CopyRate::source, "The experiment and its date.")
      .field("gather", &CopyRate::gather,
             "GPUs only: the copies that its kernel makes at least twice as fast; else None.");
}

void bind_dsa(nb::module_& m) {
  Record<DsaFinding>(m, "DsaFinding", "The state of a DSA device, and how to change it.")
      .field("name", &DsaFinding::name, "dsa0; empty where there is no device to name.")
      .field("why", &DsaFinding::why, "One line.")
      .field("remedy", &DsaFinding::remedy, "A command or a setting; empty where none helps.")
      .type()
      .def_prop_ro(
          "state", [](const DsaFinding& self) { return std::string(to_string(self.state)); },
          "ready, limited, off or absent.");
  m.def(
      "examine_dsa",
      [](const std::optional<std::filesystem::path>& sysfs,
         const std::optional<std::filesystem::path>& dev, const std::filesystem::path& pci) {
        const GilRelease release;
        return examine_dsa({.sysfs = sysfs.value_or(""), .dev = dev.value_or(""), .pci = pci});
      },
      nb::kw_only(), "sysfs"_a = nb::none(), "dev"_a = nb::none(),
      "pci"_a = std::filesystem::path("/sys/bus/pci/devices"),
      "The DSA devices of this host, or of a host whose files are in other folders. Default "
      "folders: HEADRACE_DSA_SYSFS and HEADRACE_DSA_DEV.");
}

std::string driver_in_words() {
  return unwrap(without_gil([] { return gpu_driver(); }));
}

Machine discover(const std::filesystem::path& sysfs, const std::filesystem::path& procfs,
                 std::optional<std::filesystem::path> hwloc_xml,
                 std::optional<std::vector<std::filesystem::path>> storage,
                 std::optional<std::string> headrace_nodes,
                 std::optional<std::string> memkind_hbw_nodes) {
  DiscoverOptions options{.sysfs = sysfs,
                          .procfs = procfs,
                          .hwloc_xml = std::move(hwloc_xml),
                          .headrace_nodes = std::move(headrace_nodes),
                          .memkind_hbw_nodes = std::move(memkind_hbw_nodes)};
  if (storage) options.storage.assign(storage->begin(), storage->end());
  return unwrap(without_gil([&] { return Machine::discover(options); }));
}

const Engine& engine_of(const Machine& machine, EngineId id) {
  const Engine* engine = machine.find(id);
  if (engine == nullptr) {
    raise(ErrorCode::absent, "no engine " + std::to_string(raw(id)) + "; this machine has " +
                                 std::to_string(machine.engines.size()) + ", numbered from 0");
  }
  return *engine;
}

std::vector<Node> nodes_of_kind(const Machine& machine, const Word<NodeKind>& kind) {
  std::vector<Node> nodes;
  for (const Node* node : machine.of_kind(kind.get())) nodes.push_back(*node);
  return nodes;
}

Machine machine_of(const Dict& document) {
  const nlohmann::ordered_json values = document_of(document);
  std::optional<Error> error;
  Machine machine = read_machine(JsonReader(values, "", error));
  if (error) raise(*error);
  return machine;
}

void bind_documents(nb::class_<Machine>& type) {
  type.def_static(
          "load",
          [](const std::filesystem::path& source) {
            return unwrap(Machine::load(source.string()));
          },
          "path_or_preset"_a, "Reads a JSON file, or a preset by its name.")
      .def_static(
          "from_json", [](std::string_view text) { return unwrap(Machine::from_json(text)); },
          "text"_a, "Parses what to_json() wrote.")
      .def_static("fromdict", &machine_of, "document"_a,
                  "The machine that asdict() wrote, or json.load() read.")
      .def("to_json", &Machine::to_json, "One JSON document, schema_version first.")
      .def(
          "asdict", [](const Machine& self) { return dict_of(json_of(self)); },
          "The contents of to_json() as a dict.")
      .def("to_text", &Machine::to_text, "A tree for people: a line for each node.")
      .def("overview", &overview, "Like to_text(), with one line for nodes that are alike.")
      .def(
          "to_hwloc_xml", [](const Machine& machine) { return unwrap(to_hwloc_xml(machine)); },
          "The topology in hwloc's XML format; only for a discovered machine.");
}

void bind_machine_class(nb::module_& m) {
  nb::class_<Machine> type(
      m, "Machine",
      "The graph of one host: memories (nodes), engines that copy between them, links that join "
      "them and, once measured, the speed of copies (copy rates). Plain data.");
  bind_documents(type);
  type.def_static("discover", &discover, nb::kw_only(), "sysfs"_a = std::filesystem::path("/sys"),
                  "procfs"_a = std::filesystem::path("/proc"), "hwloc_xml"_a = nb::none(),
                  "storage"_a = nb::none(), "headrace_nodes"_a = nb::none(),
                  "memkind_hbw_nodes"_a = nb::none(),
                  "Discovers the memories, engines and links of this host. `storage`: paths whose "
                  "devices become nodes (default: the working directory's). The overrides default "
                  "to the environment (HEADRACE_NODES, MEMKIND_HBW_NODES).")
      .def_ro("name", &Machine::name, "The host's or the preset's.")
      .def_ro("description", &Machine::description, "In plain words.")
      .def_ro("source", &Machine::source, "Discovered, a preset, or a path.")
      .def_prop_ro(
          "nodes", [](const Machine& self) { return self.nodes; }, "Ascending ids.")
      .def_prop_ro(
          "caches", [](const Machine& self) { return self.caches; }, "CPU caches.")
      .def_prop_ro(
          "engines", [](const Machine& self) { return self.engines; }, "Ascending ids.")
      .def_prop_ro(
          "links", [](const Machine& self) { return self.links; },
          "Links between nodes, links between sockets first.")
      .def_prop_ro(
          "copy_rates", [](const Machine& self) { return self.copy_rates; },
          "Measured rates of copies; empty before any measurement.")
      .def_prop_ro(
          "cache_mode", &cache_mode,
          "Why some of the host's memory is not a node: HBM is in cache mode. Otherwise empty.")
      .def_ro("warnings", &Machine::warnings, "Contradictions met in discovery.")
      .def_ro("provenance", &Machine::provenance, "Kernel, CPU model, hwloc version, ...")
      .def(
          "node", [](const Machine& self, NodeId id) { return *unwrap(self.node(id)); }, "id"_a,
          "The node of that id.")
      .def("engine", &engine_of, "id"_a, nb::rv_policy::copy, "The engine of that id.")
      .def("of_kind", &nodes_of_kind, "kind"_a, "Nodes of one kind, ascending.")
      .def(
          "node_of_cpu",
          [](const Machine& self, unsigned cpu) {
            const Node* node = self.node_of_cpu(cpu);
            return node == nullptr ? std::nullopt : std::optional<Node>(*node);
          },
          "cpu"_a, "The node whose cpus hold `cpu`, or None.")
      .def(
          "host_of",
          [](const Machine& self, NodeId id) {
            const Node* host = host_of(self, *unwrap(self.node(id)));
            return host == nullptr ? std::nullopt : std::optional<NodeId>(host->id);
          },
          "id"_a,
          "The nearest node with CPUs: the node itself if it has CPUs; None if no node has any.")
      .def(
          "last_level_cache",
          [](const Machine& self, unsigned cpu) {
            const CacheLevel* cache = last_level_cache(self, cpu);
            return cache == nullptr ? std::nullopt : std::optional(cache->size);
          },
          "cpu"_a = 0, "Bytes of the largest cache that data of `cpu` can stay in, or None.")
      .def("__repr__", [](const Machine& self) {
        return "Machine(" + self.name + ": " + std::to_string(self.nodes.size()) + " nodes, " +
               std::to_string(self.engines.size()) + " engines)";
      });
}

}  // namespace

void bind_machine(nb::module_& m) {
  bind_nodes(m);
  bind_parts(m);
  bind_dsa(m);
  m.def("gpu_driver", &driver_in_words,
        "The driver of GPUs that this process uses; AbsentError or UnsupportedError with what to "
        "do where there is none.");
  bind_machine_class(m);
  m.def("presets", &presets, "Names of the machines that come with Headrace, for Machine.load.");
}

}  // namespace headrace::python
