// SPDX-License-Identifier: Apache-2.0
// The graph of one host: its memories (nodes), copying devices (engines), connections (links), and,
// once measured, the speed of copies (copy rates). A profile is a machine with its measurements.
//
//     auto machine = headrace::Machine::discover();
//     if (!machine) return headrace::Unexpected(machine.error());
//     for (const headrace::Node& node : machine->nodes) use(node);
//
// A Machine is plain data: reading it touches no hardware. A machine loaded from a file works like
// a discovered one for place and for the command. It is not a handle on memory; for that see
// buffer.h.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/cpus.h"
#include "headrace/export.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// The kind of memory, as far as software can tell. Decided by the rule in
// docs/design/node-kinds.md, always with a reason.
enum class NodeKind : std::uint8_t { dram, hbm, cxl, gpu, storage };

// The kind of copying device.
enum class EngineKind : std::uint8_t {
  cpu,      // the cores of one memory node
  ssd,      // the queue of one storage device
  dsa,      // an Intel Data Streaming Accelerator
  gpu,      // a copy engine of a GPU
  migrate,  // the kernel's page migration: moves pages, keeps addresses
};

// The kind of connection between parts of a machine.
enum class LinkKind : std::uint8_t {
  upi,     // between sockets: Intel's Ultra Path Interconnect
  xgmi,    // between sockets: AMD's Infinity Fabric
  socket,  // between sockets, of another or unknown make
  mesh,    // within a socket, between neighbouring tiles
  pcie,    // a device and its socket
  cxl,     // a memory expander and its socket
  nvlink,  // a GPU and its socket, or another GPU
  c2c,     // NVLink-C2C: a GPU and the CPUs of its module
};

std::string_view to_string(NodeKind kind);
std::string_view to_string(EngineKind kind);
std::string_view to_string(LinkKind kind);
Result<NodeKind> parse_node_kind(std::string_view text);

// Speed of a memory node for an initiator (a node with CPUs): rated by firmware (HMAT, CDAT), or
// measured with all its CPUs reading. The speed of engines is in CopyRate.
struct AccessAttributes {
  NodeId initiator;
  std::optional<Nanoseconds> read_latency;
  std::optional<Nanoseconds> write_latency;
  std::optional<BytesPerSecond> read_bandwidth;
  std::optional<BytesPerSecond> write_bandwidth;
  std::string source;  // "hmat (sysfs)", "hwloc", or the experiment
  bool measured = false;
};

// The memory that CPUs and a GPU share (CUDA programming guide, "unified memory").
enum class GpuParadigm : std::uint8_t {
  ats,      // all memory, by the CPUs' page tables: GH200, POWER9 with NVLink
  hmm,      // all memory, by page faults in software
  managed,  // memory allocated as managed, by page faults
  limited,  // managed memory, which no CPU may touch while the GPU works
};

std::string_view to_string(GpuParadigm paradigm);

// Attributes reported by a GPU's driver.
struct GpuAttributes {
  std::string pci;   // "0000:17:00.0"; empty when unknown
  std::string uuid;  // 32 hexadecimal digits; a MIG device has its own; empty when unknown
  GpuParadigm paradigm = GpuParadigm::limited;
  unsigned copy_engines = 0;        // copies that can run at the same time
  std::optional<NodeId> host = {};  // the nearest memory node of CPUs
  bool emulated = false;            // a GPU in software; its speed means nothing
};

// A cache before a node's memory that all accesses to the node pass: HBM in cache mode, or DRAM
// before slower memory. The kernel reports it if HMAT does (memory_side_cache). Memory that serves
// as a cache cannot be allocated.
struct MemorySideCache {
  Bytes size;
  std::optional<Bytes> line = {};
  std::string indexing = {};      // "direct-mapped", "indexed"; empty when unknown
  std::string write_policy = {};  // "write-back", "write-through"; empty when unknown
};

// One memory at one location.
struct Node {
  NodeId id;
  NodeKind kind;
  std::string reason;  // the evidence for the kind, in words
  std::string name;    // "node 0", "vda", "NVIDIA H200"
  std::optional<Bytes> capacity;
  std::string capacity_source;  // "meminfo", "/proc/meminfo (node meminfo says 4.1 GiB)", ...
  CpuSet cpus;                  // local CPUs; empty for a CPU-less node
  std::vector<AccessAttributes> access;
  std::map<NodeId, unsigned> distances;  // by SLIT: 10 is local; only memory nodes
  std::string path;                      // for storage: a directory on it, or the device
  // The socket (package) that it is attached to, by the firmware's number. Nothing: unknown, or not
  // local to one socket.
  std::optional<unsigned> socket;
  // Nothing: not a GPU, or its driver was not asked.
  std::optional<GpuAttributes> gpu = {};
  // The largest cache before its memory.
  std::optional<MemorySideCache> side_cache = {};

  // True if CPUs can load from it and store to it. A GPU's memory counts only if it is a NUMA node
  // (GH200), which has the kernel's number.
  bool byte_addressable() const {
    return kind != NodeKind::storage && (kind != NodeKind::gpu || raw(id) < kFirstGpuNode);
  }
};

// A data or unified cache and the CPUs that share it.
struct CacheLevel {
  unsigned level = 0;
  Bytes size;
  CpuSet cpus;
};

// A copying device. The engine's kind decides which backend drives it.
struct Engine {
  EngineId id;
  EngineKind kind;
  std::string name;    // "cpu0", "vda", "dsa0"
  NodeId home;         // the node at which it is located
  std::string reason;  // how it was found
};

// When a GPU copies many small pieces with a kernel on its multiprocessors: pieces of at most
// `bytes`, submitted together, `count` or more of them. 0 bytes: never.
struct GatherLimit {
  Bytes bytes;
  std::uint64_t count = 0;
  friend bool operator==(const GatherLimit&, const GatherLimit&) = default;
};

// Measured cost of copies by one engine between two nodes: T(V) = latency + V / bandwidth.
struct CopyRate {
  EngineId engine;
  NodeId from;
  NodeId to;
  Nanoseconds latency;
  BytesPerSecond bandwidth;
  std::string source;  // the experiment and its date
  // For a GPU: the pieces for which its kernel was at least twice as fast as its copy engines.
  std::optional<GatherLimit> gather = {};
};

// A connection between two groups of nodes, with its own limits, which all its traffic shares. The
// speed of an engine over it is a CopyRate, not a property of the link.
struct Link {
  LinkKind kind;
  std::vector<NodeId> a;  // nodes at one end: the memory of a socket, a tile or a device
  std::vector<NodeId> b;  // nodes at the other end
  std::string reason;     // how it was found, and unknown properties
  // Peak bandwidth in one direction; in both at once, if that is not twice as much; and the latency
  // added to an access. Each with its source; nothing when unknown.
  std::optional<BytesPerSecond> each_way = {};
  std::string each_way_source = {};
  std::optional<BytesPerSecond> both_ways = {};
  std::string both_ways_source = {};
  std::optional<Nanoseconds> latency = {};
  std::string latency_source = {};
};

// The places where discovery looks. Tests set these paths to show it another machine.
struct DiscoverOptions {
  std::string sysfs = "/sys";
  std::string procfs = "/proc";
  // The folder of DSA devices. Nothing: HEADRACE_DSA_SYSFS, and without that variable
  // bus/dsa/devices of `sysfs`.
  std::optional<std::string> dsa = {};
  // hwloc XML to read instead of the running system.
  std::optional<std::string> hwloc_xml = {};
  // True: the GPU driver reports the GPUs' memory, copy engines and location. This initialises the
  // driver, so children made by fork() cannot use it (docs/design/gpu.md). False: only sysfs.
  // HEADRACE_LIBCUDA names the driver's library; empty: as false.
  bool gpu_driver = true;
  // Paths whose storage devices become nodes. A path that does not exist is an error.
  std::vector<std::string> storage = {"."};
  // Overrides in the format of HEADRACE_NODES ("8-15=hbm,2=cxl") and MEMKIND_HBW_NODES ("8-15").
  // Nothing: the environment variable is read.
  std::optional<std::string> headrace_nodes = {};
  std::optional<std::string> memkind_hbw_nodes = {};
};

struct Machine {
  std::string name;  // the host's name, or the preset's
  std::string description;
  std::string source;       // "discovered", "preset xeon-max", a path
  std::vector<Node> nodes;  // ascending ids
  std::vector<CacheLevel> caches;
  std::vector<Engine> engines;  // engines[i].id == i
  std::vector<Link> links;      // those between sockets first
  std::vector<CopyRate> copy_rates;
  std::vector<std::string> warnings;  // contradictions found in discovery, one line each
  std::map<std::string, std::string> provenance;  // kernel, cpu model, hwloc version, ...
  // Constants for predictions, a JSON object (docs/design/predict/ceilings.md); empty: none. The
  // library keeps it and does not interpret it. Requires for to_json(): empty, or a JSON object.
  std::string model = {};

  // Discovers this host through hwloc and sysfs. Missing HMAT, caches or permissions leave out
  // facts.
  // Errors: invalid: a malformed override; absent: a path, or a node of an override, does not
  // exist, or no node is online; io: no node has memory, though CPUs are online.
  static Result<Machine> discover(const DiscoverOptions& options = {});
  // Loads a preset by name (see presets()), a JSON file, or NAME.json in the directory of the
  // environment variable HEADRACE_MACHINES. Errors: absent; io; invalid, with the location.
  static Result<Machine> load(const std::string& path_or_preset);
  // Parses a machine. Ignores unknown fields. Errors: invalid, with the location.
  static Result<Machine> from_json(std::string_view text);
  // JSON: `{"schema_version": 1, ...}`, in a stable field order, indented by two spaces.
  std::string to_json() const;
  // A tree for people, one line per node or engine.
  std::string to_text() const;

  // The node or engine with this id; nullptr: none.
  const Node* find(NodeId id) const;
  const Engine* find(EngineId id) const;
  // As find(). Errors: absent, with a list of the nodes.
  Result<const Node*> node(NodeId id) const;
  // Nodes of one kind, in ascending order.
  std::vector<const Node*> of_kind(NodeKind kind) const;
  // The node whose cpus contain `cpu`; nullptr: none.
  const Node* node_of_cpu(unsigned cpu) const;
  const CopyRate* rate(EngineId engine, NodeId from, NodeId to) const;
};

// The GPU driver of this process, in words: "libcuda.so.1, CUDA 13.0". Initialises it, as
// Machine::discover does. The message of an error says what to do.
// Errors: absent: no driver, or it sees no GPU; unsupported: the driver is too old, or this process
// is a child made by fork() of a process that used it.
Result<std::string> gpu_driver();

// The topology in hwloc's XML format, for programs that use hwloc (HWLOC_XMLFILE=machine.xml). It
// contains node subtypes by Headrace's kinds (HBM, ...), and latencies and bandwidths as memory
// attributes per initiator, measured ones before rated ones, in hwloc's units (ns and MiB/s). For
// the discovered machine it is hwloc's own export plus these. For any other machine it contains the
// packages, memory nodes and CPUs, without caches and devices.
// Errors: invalid: the machine has no CPUs, or hwloc rejects it.
Result<std::string> to_hwloc_xml(const Machine& machine);

// Names of the machines that Headrace ships, for Machine::load.
std::vector<std::string> presets();

// True if `engine` can copy between these nodes:
// - cores and DSA: between byte-addressable nodes
// - an SSD queue: between its storage node and byte-addressable nodes
// - a GPU engine: one side is its GPU; the other is memory, a GPU, or storage that no other engine
//   copies to that GPU
bool can_copy(const Engine& engine, const Node& from, const Node& to);

// Why memory of the host is not a node: "HBM is in cache mode: ...". For a CPU without known HBM it
// names the memory-side caches and their nodes. Contains the way to change it. Empty: no node has a
// memory-side cache.
std::string cache_mode(const Machine& machine);

// The largest cache for data of `cpu`; nullptr when unknown.
const CacheLevel* last_level_cache(const Machine& machine, unsigned cpu);

}  // namespace HEADRACE_API headrace
