// SPDX-License-Identifier: Apache-2.0
// The graph of one host: its memories (nodes), what can copy between them (engines), what joins
// them (links), and, once measured, how fast copies are (copy rates). With the measurements it is
// called a profile.
//
// A Machine is plain data: reading it touches no hardware, and one loaded from a file serves place
// and the command as well as one discovered here. It is not a handle on memory; for that see
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

// What a node is made of, as far as software can tell; decided by the rule in
// docs/design/node-kinds.md and always given with its reason.
enum class NodeKind : std::uint8_t { dram, hbm, cxl, gpu, storage };

// What kind of thing copies.
enum class EngineKind : std::uint8_t {
  cpu,      // the cores of one memory node
  ssd,      // the queue of one storage device
  dsa,      // an Intel Data Streaming Accelerator
  gpu,      // a copy engine of a GPU
  migrate,  // the kernel's page migration: moves pages, keeps addresses
};

// What kind of way joins places of a machine.
enum class LinkKind : std::uint8_t {
  upi,     // between sockets: Intel's Ultra Path Interconnect
  xgmi,    // between sockets: AMD's Infinity Fabric
  socket,  // between sockets, of another or an unknown make
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

// What an initiator (a node with CPUs) can expect of a memory node: rated by firmware (HMAT, CDAT),
// or measured with all its CPUs reading. What engines reach are copy rates.
struct AccessAttributes {
  NodeId initiator;
  std::optional<Nanoseconds> read_latency;
  std::optional<Nanoseconds> write_latency;
  std::optional<BytesPerSecond> read_bandwidth;
  std::optional<BytesPerSecond> write_bandwidth;
  std::string source;  // "hmat (sysfs)", "hwloc", the experiment
  bool measured = false;
};

// How far the CPUs and a GPU see each other's memory (CUDA programming guide, "unified memory").
enum class GpuParadigm : std::uint8_t {
  ats,      // all of it, by the page tables of the CPUs: GH200, POWER9 with NVLink
  hmm,      // all of it, by page faults in software
  managed,  // what is allocated as managed memory, by page faults
  limited,  // managed memory that no processor may touch while a GPU works
};

std::string_view to_string(GpuParadigm paradigm);

// What the driver of a GPU says about it.
struct GpuAttributes {
  std::string pci;   // "0000:17:00.0"; empty when unknown
  std::string uuid;  // 32 hexadecimal digits, of a MIG device its own; empty when unknown
  GpuParadigm paradigm = GpuParadigm::limited;
  unsigned copy_engines = 0;        // copies that may be under way at the same time
  std::optional<NodeId> host = {};  // the memory node of CPUs nearest to it
  bool emulated = false;            // a GPU made of software; its speed says nothing
};

// A cache in front of a node's memory that every access to it passes: HBM in cache mode, or DRAM
// before slower memory. The kernel tells of it where HMAT does (memory_side_cache); what it is made
// of is no memory to allocate.
struct MemorySideCache {
  Bytes size;
  std::optional<Bytes> line = {};
  std::string indexing = {};      // "direct-mapped", "indexed"; empty when unknown
  std::string write_policy = {};  // "write-back", "write-through"; empty when unknown
};

// One memory with one location.
struct Node {
  NodeId id;
  NodeKind kind;
  std::string reason;  // why this kind: the evidence, in words
  std::string name;    // "node 0", "vda", "NVIDIA H200"
  std::optional<Bytes> capacity;
  std::string capacity_source;  // "meminfo", "/proc/meminfo (node meminfo says 4.1 GiB)", ...
  CpuSet cpus;                  // local CPUs; empty for a CPU-less node
  std::vector<AccessAttributes> access;
  std::map<NodeId, unsigned> distances;  // SLIT: 10 is local; only memory nodes
  std::string path;                      // storage: a directory on it; else empty
  // The package (socket) it is attached to, as the firmware counts them; nothing when unknown or
  // not local to one.
  std::optional<unsigned> socket;
  // GPUs whose driver was asked; else nothing.
  std::optional<GpuAttributes> gpu = {};
  // The largest of those before its memory.
  std::optional<MemorySideCache> side_cache = {};

  // Loads and stores of a CPU reach it. The memory of a GPU only where it is a NUMA node (GH200),
  // which has the kernel's number.
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

// Something that can copy. Which backend drives it follows from its kind.
struct Engine {
  EngineId id;
  EngineKind kind;
  std::string name;    // "cpu0", "vda", "dsa0"
  NodeId home;         // the node it sits at
  std::string reason;  // how it was found
};

// Many small copies given to a GPU together: each of at most `bytes`, `count` of them or more, are
// made by a kernel on its multiprocessors. 0 bytes: none are.
struct GatherLimit {
  Bytes bytes;
  std::uint64_t count = 0;
  friend bool operator==(const GatherLimit&, const GatherLimit&) = default;
};

// A measured cost of copying with one engine between two nodes: T(V) = latency + V / bandwidth.
struct CopyRate {
  EngineId engine;
  NodeId from;
  NodeId to;
  Nanoseconds latency;
  BytesPerSecond bandwidth;
  std::string source;  // the experiment and its date
  // A GPU's: where its kernel was measured to be at least twice as fast as its copy engines.
  std::optional<GatherLimit> gather = {};
};

// A way that data take between the nodes of its one end and those of its other, with limits of its
// own, which all who cross it share. Not how fast an engine copies over it, which is a CopyRate.
struct Link {
  LinkKind kind;
  std::vector<NodeId> a;  // what is at one end: the memory of a socket, a tile or a device
  std::vector<NodeId> b;  // and at the other
  std::string reason;     // how it was found, what is not known of it
  // The most in one direction, in both at once where that is not twice as much, and the time that
  // it adds to an access. Each with who says so; nothing when unknown.
  std::optional<BytesPerSecond> each_way = {};
  std::string each_way_source = {};
  std::optional<BytesPerSecond> both_ways = {};
  std::string both_ways_source = {};
  std::optional<Nanoseconds> latency = {};
  std::string latency_source = {};
};

// Where discovery looks, as paths, so that tests can show it another machine.
struct DiscoverOptions {
  std::string sysfs = "/sys";
  std::string procfs = "/proc";
  // The folder of DSA devices; HEADRACE_DSA_SYSFS is read where this holds nothing, and without
  // that it is bus/dsa/devices of `sysfs`.
  std::optional<std::string> dsa = {};
  // hwloc XML to read instead of asking the running system.
  std::optional<std::string> hwloc_xml = {};
  // Whether GPUs are asked for by their driver, and not only for by sysfs: their memory, copy
  // engines and places. It is initialised by that, after which children made by fork() cannot use
  // it (docs/design/gpu.md). HEADRACE_LIBCUDA names its library; empty: as false.
  bool gpu_driver = true;
  // Paths whose storage devices become nodes; those that do not exist are an error.
  std::vector<std::string> storage = {"."};
  // Overrides in the format of HEADRACE_NODES and MEMKIND_HBW_NODES; the environment is read where
  // these hold nothing. "8-15=hbm,2=cxl"; "8-15".
  std::optional<std::string> headrace_nodes = {};
  std::optional<std::string> memkind_hbw_nodes = {};
};

struct Machine {
  std::string name;  // host name, or the preset's
  std::string description;
  std::string source;       // "discovered", "preset xeon-max", a path
  std::vector<Node> nodes;  // ascending ids
  std::vector<CacheLevel> caches;
  std::vector<Engine> engines;  // engines[i].id == i
  std::vector<Link> links;      // those between sockets first
  std::vector<CopyRate> copy_rates;
  std::vector<std::string> warnings;              // contradictions met in discovery, one line each
  std::map<std::string, std::string> provenance;  // kernel, cpu model, hwloc version, ...

  // Asks hwloc and sysfs what this host has. Missing HMAT, caches or permissions leave facts out.
  // Errors: invalid: a malformed override. absent: a path or a node of an override that does not
  // exist, or no node is online. io: no node has memory, though CPUs are online.
  static Result<Machine> discover(const DiscoverOptions& options = {});
  // Reads a preset by its name (`presets()`), a JSON file, or NAME.json of the directory in the
  // environment variable HEADRACE_MACHINES. absent, io, or invalid with the place.
  static Result<Machine> load(const std::string& path_or_preset);
  // Any text gives a machine or invalid with the place. Unknown fields are passed over.
  static Result<Machine> from_json(std::string_view text);
  // `{"schema_version": 1, ...}`, stable field order, two spaces of indent.
  std::string to_json() const;
  // A tree people like to read; one node or engine per line.
  std::string to_text() const;

  // The node or engine of that id; nullptr if there is none.
  const Node* find(NodeId id) const;
  const Engine* find(EngineId id) const;
  // As find(), with an Error that lists what there is.
  Result<const Node*> node(NodeId id) const;
  // Nodes of one kind, ascending.
  std::vector<const Node*> of_kind(NodeKind kind) const;
  // The node whose cpus hold `cpu`; nullptr if none does.
  const Node* node_of_cpu(unsigned cpu) const;
  const CopyRate* rate(EngineId engine, NodeId from, NodeId to) const;
};

// The driver of GPUs that this process uses, in words: "libcuda.so.1, CUDA 13.0". It is initialised
// by being asked, as by Machine::discover. absent: none here, or it sees no GPU. unsupported: it is
// too old, or this process is a child made by fork() of one that used it. The message says what to
// do.
Result<std::string> gpu_driver();

// The topology in hwloc's XML format, for programs that ask hwloc (HWLOC_XMLFILE=machine.xml): with
// node subtypes by our kinds (HBM, ...) and with latencies and bandwidths as memory attributes, per
// initiator, measured ones before rated ones; hwloc's units, ns and MiB/s. The discovered machine
// is hwloc's own export plus these; another one has what a Machine knows: packages, memory nodes
// and CPUs, no caches and no devices. invalid: it has no CPUs, or hwloc does not take it.
Result<std::string> to_hwloc_xml(const Machine& machine);

// Names of the machines that come with Headrace, for Machine::load.
std::vector<std::string> presets();

// Whether `engine` can copy from `from` to `to` at all: cores and DSA between byte-addressable
// nodes, an SSD queue between its storage node and byte-addressable ones, a GPU engine where one
// side is its GPU and the other memory, a GPU, or storage that nothing else copies to that GPU.
bool can_copy(const Engine& engine, const Node& from, const Node& to);

// Why memory that the host has is no node: "HBM is in cache mode: ...", or, of a CPU that is not
// known to carry HBM, what is before which nodes; with the way to change it. Empty where no node
// has a memory-side cache.
std::string cache_mode(const Machine& machine);

// The largest cache that data of `cpu` can stay in; nullptr when unknown.
const CacheLevel* last_level_cache(const Machine& machine, unsigned cpu);

}  // namespace HEADRACE_API headrace
