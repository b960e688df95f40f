// SPDX-License-Identifier: Apache-2.0
// The requested location of memory: nodes with weights, strict or preferred, nodes to spill to, and
// the page size. Pure functions choose it.
//
//     auto placement = headrace::Placement::parse(machine, "hbm:dram");
//     if (!placement) return headrace::Unexpected(placement.error());
//     auto buffer = headrace::allocate(machine, size, *placement);
//
// A Placement is a request. `allocate` (buffer.h) carries it out, and `where` reports the result.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// The requested page size. If such huge pages are not available, the next smaller size is used, and
// Buffer::page_size returns it.
enum class PageSize : std::uint8_t {
  base,         // the kernel's: 4 KiB on x86, on aarch64 up to 64 KiB
  transparent,  // the same, and the kernel is asked for transparent huge pages
  huge_2m,      // hugetlb, 2 MiB; else transparent
  huge_1g,      // hugetlb, 1 GiB; else 2 MiB; else transparent
};

std::string_view to_string(PageSize size);

struct NodeWeight {
  NodeId node;
  unsigned weight = 1;  // pages per turn
  friend bool operator==(const NodeWeight&, const NodeWeight&) = default;
};

// A property of the wanted node, instead of its kind. Compared by measured values, else by values
// rated by firmware, else by the kind of memory. Values within 10 % are equal; the nearest of equal
// nodes is taken.
enum class Property : std::uint8_t {
  fastest,            // the highest bandwidth; of equals the lowest latency
  lowest_latency,     // of a load on an idle machine
  highest_bandwidth,  // with all CPUs of the initiator reading
  largest,            // the most memory
};

std::string_view to_string(Property property);

// How pages are distributed over several nodes: the nodes of a kind, or named nodes.
enum class Distribution : std::uint8_t {
  // For a kind: the nodes nearest to the CPUs that will use the memory.
  // - Several equally near nodes are interleaved.
  // - CPUs of several nodes: the nearest node of each, interleaved.
  // - Unknown CPUs: all nodes of the kind, interleaved.
  // - When full: the next nearest of the kind, one after another. Then, unless strict,
  //   Placement::spill, else all other memory, nearest first.
  //
  // Named nodes are interleaved.
  nearest,
  // Each page on the node nearest to the first thread that touches it; when that is full, on the
  // next nearest by the kernel's distances. `touch` has no effect. Not with weights, lock or pin.
  // Linux before 5.15: if not strict, on the first of the nodes only.
  first_touch,
  // Pages interleaved over all nodes.
  interleave,
};

std::string_view to_string(Distribution distribution);

// A node, or all nodes of a kind, nearest first.
using NodeChoice = std::variant<NodeId, NodeKind>;

// The largest weight; the kernel's limit.
inline constexpr unsigned kMaxWeight = 255;

struct Placement {
  // One node: bound to it. Several: pages interleaved, `weight` at a time.
  std::vector<NodeWeight> nodes;
  // Nodes of this kind, instead of `nodes`. `distribution` chooses them in `resolve`.
  std::optional<NodeKind> kind = {};
  Distribution distribution = Distribution::nearest;
  // The best node, instead of `nodes` and `kind`. If not strict, memory spills to the other nodes
  // in falling order. Only with Distribution::nearest.
  std::optional<Property> property = {};
  // True: only these nodes (or all nodes of the kind), else exhausted. False: memory spills when
  // they are full.
  bool strict = true;
  // The nodes to spill to, in this order; after the last one the request is exhausted. Empty: the
  // kernel decides. If strict, only nodes of the kinds of its own nodes, as `resolve` writes them.
  std::vector<NodeChoice> spill = {};
  // The CPUs that will use the memory; empty: the calling CPU and its neighbours.
  CpuSet near = {};
  PageSize pages = PageSize::transparent;
  // Touches every page at once, in parallel, from CPUs near its node.
  bool touch = true;
  // Locks the memory (mlock): never swapped, faulted in at once.
  bool lock = false;
  // Registers the memory with the GPU driver, so that copy engines reach it at full speed. Locks it
  // and touches every page.
  bool pin = false;
  std::string reason;  // why a policy chose it; empty: the user chose
  // Written by `resolve`: the nodes that the caller did not name. Allocation skips those among them
  // that the host lacks at that moment or the cpuset forbids, unless none would be left.
  std::vector<NodeId> chosen = {};
  // Written by `resolve`: the placement is not strict and states no spill order. Then `spill` is no
  // limit. Memory not touched at once is neither counted nor divided by free memory: it is placed
  // as the kernel decides.
  bool anywhere = false;

  static Placement on(NodeId node);
  static Placement on(NodeKind kind);
  static Placement on(Property property);
  // Page by page over the nodes, or over all nodes of a kind.
  static Placement interleave(const std::vector<NodeId>& nodes);
  static Placement interleave(NodeKind kind);
  // Pages interleaved by weight. {{n0, 3}, {n8, 1}}: three pages on n0, one on n8, and so on.
  // Private to the allocation; needs no root.
  static Placement weighted(std::vector<NodeWeight> nodes);
  // Parses a placement:
  // - a kind: "hbm" or "storage", also with its distribution: "hbm_interleave", "hbm_first_touch"
  // - a property: "fastest"
  // - nodes: "0-3,8", or with weights: "0=3,8=1"
  // - kinds with weights: "dram=3,cxl=1" (a kind's share is spread evenly over its nodes)
  // - several, tried in order, not strict: "hbm:dram:2". The first may be any of the above; the
  //   others are kinds and nodes of memory.
  //
  // Errors: invalid: none of these, with the likely intention; absent: no such node on this
  // machine; unsupported: storage among other nodes.
  static Result<Placement> parse(const Machine& machine, std::string_view text);

  // "8-15", "0=3,8=1:2": parse() of it returns the same nodes, weights and spill nodes.
  std::string to_text() const;
};

// The storage device of a placement on storage alone, which is a file there; if it names the kind,
// the first device. nullptr: the placement is memory.
const Node* storage_of(const Machine& machine, const Placement& placement);

// The GPU of a placement in a GPU's own memory alone, which no CPU reaches. If it names the kind,
// the first GPU; nullptr if one of the GPUs is a NUMA node. nullptr: any other placement.
const Node* gpu_of(const Machine& machine, const Placement& placement);

// Replaces a placement's kind or property, and the kinds it spills to, by nodes of `machine`, and
// checks that all its nodes are memory. Nodes are nearest first, by distance to the CPUs of
// Placement::near, else to node `near`. For a kind with Distribution::nearest, the nearest nodes
// become its nodes, and the others its spill nodes. Errors:
// - absent: no such node
// - unsupported: a node that is not memory
// - invalid: not exactly one of nodes, kind and property; a weight of 0 or above kMaxWeight; a
//   repeated node; a strict placement that spills to another kind; a property with another
//   distribution than nearest
// - invalid: first touch with a spill order, weights, lock or pin
Result<Placement> resolve(const Machine& machine, const Placement& placement,
                          std::optional<NodeId> near = std::nullopt);

// As resolve, but a placement on storage or on a GPU alone becomes its node (the nearest of several
// GPUs). The result is valid for allocate (buffer.h), and for heaps except on a GPU.
Result<Placement> resolve_with_storage(const Machine& machine, const Placement& placement,
                                       std::optional<NodeId> near = std::nullopt);

// The byte-addressable node with CPUs nearest to `node`: itself if it has CPUs; nullptr if no node
// has. By SLIT distance, then firmware's initiators, then the socket.
const Node* host_of(const Machine& machine, const Node& node);

// The input of a placement policy.
struct PlacementRequest {
  NodeId source;                         // the current node of the bytes
  Bytes bytes;                           // the number of bytes to place
  std::optional<NodeId> initiator = {};  // the node whose CPUs will use them; nothing when unknown
};

// (machine, request) -> placement. Pure: returns the same for this host's machine and for a loaded
// one. Must not throw: an exception ends the program.
using PlacementPolicy = std::function<Result<Placement>(const Machine&, const PlacementRequest&)>;

namespace HEADRACE_API place {

// The fastest byte-addressable node near the initiator that is faster than the source's node and
// has the capacity. The default initiator is the node with CPUs nearest to the source.
//
// Speed is measured read bandwidth, else rated bandwidth, else the kind (hbm > dram > cxl >
// storage): the first of these known for all compared nodes. Nodes within 10 % are equally fast;
// the nearest of them is taken. An equally fast node counts as faster if it is on the initiator's
// socket and the source is not.
// Errors: absent: no node is faster.
Result<Placement> nearest_fast(const Machine& machine, const PlacementRequest& request);

// Always this node.
PlacementPolicy always(NodeId node);
// Always this placement.
PlacementPolicy always(Placement placement);

}  // namespace HEADRACE_API place
}  // namespace HEADRACE_API headrace
