// SPDX-License-Identifier: Apache-2.0
// Where memory should live: nodes with weights, strict or preferred and then where, and the page
// size; and the pure functions that choose it.
//
// A Placement is a wish; `allocate` (buffer.h) carries it out and `where` tells what came of it.
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

// The size of pages asked for. When huge pages are not to be had, the next smaller size is taken,
// and the buffer says so (Buffer::page_size).
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

// What a node is wanted for, instead of its kind. Measured values decide, else those that firmware
// rates, else the kind of memory; values within 10 % are equal, and of equals the nearest is taken.
enum class Property : std::uint8_t {
  fastest,            // the highest bandwidth, of equals the lowest latency
  lowest_latency,     // of a load on an idle machine
  highest_bandwidth,  // of all CPUs of the initiator reading
  largest,            // the most memory
};

std::string_view to_string(Property property);

// Which of several nodes a page comes to lie on: of those of a kind, or of those named.
enum class Dealing : std::uint8_t {
  // A kind's nodes nearest to the CPUs that will use it, in turn where several are equally near or
  // the CPUs are of several nodes, which have each its nearest; where nothing says which CPUs these
  // are, all in turn. When these are full the next nearest of the kind one after the other, and
  // then, unless strict, what Placement::spill says, else all other memory, nearest first. Nodes
  // that are named: in turn.
  nearest,
  // Each page on that which is nearest to the thread that touches it first; when it is full on the
  // next nearest, as the kernel knows distances. `touch` does nothing; not locked, not pinned, and
  // without weights. Linux before 5.15: where not strict, on the first of the nodes alone.
  first_touch,
  // Pages in turn over all.
  interleave,
};

std::string_view to_string(Dealing dealing);

// A node, or all nodes of a kind, nearest first.
using NodeChoice = std::variant<NodeId, NodeKind>;

// The largest weight, as the kernel's own.
inline constexpr unsigned kMaxWeight = 255;

struct Placement {
  // One node: bound to it. Several: pages in turn, `weight` at a time.
  std::vector<NodeWeight> nodes;
  // Instead of nodes: nodes of this kind, which `dealing` chooses; resolved by `resolve`.
  std::optional<NodeKind> kind = {};
  Dealing dealing = Dealing::nearest;
  // Instead of both: the best node; where not strict, the others spill in falling order. With
  // Dealing::nearest only.
  std::optional<Property> property = {};
  // strict: these nodes, of a kind all of its nodes, or exhausted. Otherwise memory spills when
  // they are full.
  bool strict = true;
  // Where to, in this order; after the last one the request is exhausted. Empty: the kernel says.
  // A strict placement has only nodes here of the kinds its own are of, as `resolve` writes them.
  std::vector<NodeChoice> spill = {};
  // The CPUs that will use it; empty: the calling one and its neighbours.
  CpuSet near = {};
  PageSize pages = PageSize::transparent;
  // Touch every page at once, in parallel, from CPUs near its node.
  bool touch = true;
  // Keep it in memory (mlock): never swapped, faulted in at once.
  bool lock = false;
  // Register it with the driver of GPUs, so that their copy engines reach it at their full speed.
  // Locks it in memory, and touches every page.
  bool pin = false;
  std::string reason;  // why a policy chose it; empty when the user did
  // Written by `resolve`: the nodes that nobody named. Who allocates leaves out of them what the
  // host does not have at that moment, or the cpuset forbids, unless nothing would be left.
  std::vector<NodeId> chosen = {};
  // Written by `resolve`: not strict, and nobody said where to spill. Then `spill` is no limit, and
  // what is not touched at once is neither counted nor cut: it goes on as the kernel says.
  bool anywhere = false;

  static Placement on(NodeId node);
  static Placement on(NodeKind kind);
  static Placement on(Property property);
  // Page by page in turn over the nodes, or over all nodes of a kind.
  static Placement interleave(const std::vector<NodeId>& nodes);
  static Placement interleave(NodeKind kind);
  // Pages in turn by weight, {{n0, 3}, {n8, 1}}: three pages on n0, one on n8, and so on. Private
  // to the allocation; needs no root.
  static Placement weighted(std::vector<NodeWeight> nodes);
  // As people write it: a kind "hbm" or "storage", also with how it is dealt, "hbm_interleave" or
  // "hbm_first_touch", a property "fastest", nodes "0-3,8", weights of nodes "0=3,8=1" or of kinds
  // "dram=3,cxl=1" (a kind's share is spread evenly over all its nodes).
  // Several, "hbm:dram:2", are tried in this order: not strict; the first may be any of these, the
  // others kinds and nodes of memory. invalid: none of these, with what was probably meant.
  // absent: no such node here. unsupported: storage among other nodes.
  static Result<Placement> parse(const Machine& machine, std::string_view text);

  // "8-15", "0=3,8=1:2": parse() of it gives the same nodes, weights and nodes to spill to.
  std::string to_text() const;
};

// The storage device on which a placement wants its memory, alone, as a file; of several of the
// kind the first. nullptr: it wants memory proper.
const Node* storage_of(const Machine& machine, const Placement& placement);

// The GPU in whose own memory, which no CPU reaches, a placement wants to be, alone; of several of
// the kind the first, and none where one of them is a NUMA node. nullptr: it wants none.
const Node* gpu_of(const Machine& machine, const Placement& placement);

// The same placement with its kind or property, and the kinds it spills to, replaced by the nodes
// of `machine` that are of it, and all nodes checked to be memory. Nearest first: to the CPUs of
// Placement::near, else to node `near`. Of a kind dealt by nearness the nearest become the nodes,
// the others what it spills to. absent: no such node; unsupported: a node that is not
// memory; invalid: not exactly one of nodes, a kind and a property; a weight of 0 or more than
// kMaxWeight; a node twice; a strict placement that spills to another kind; one by first touch that
// says where to spill, has weights, or is locked or pinned; a property that is dealt.
Result<Placement> resolve(const Machine& machine, const Placement& placement,
                          std::optional<NodeId> near = std::nullopt);

// As resolve, and a placement on storage or on a GPU alone becomes its node, of several GPUs the
// nearest: what allocate (buffer.h) takes, and of storage also heaps.
Result<Placement> resolve_with_storage(const Machine& machine, const Placement& placement,
                                       std::optional<NodeId> near = std::nullopt);

// The byte-addressable node with CPUs nearest to `node`: itself if it has CPUs; nullptr if none
// has. By SLIT distance, then firmware's initiators, then the socket.
const Node* host_of(const Machine& machine, const Node& node);

// What a placement policy is asked.
struct PlacementRequest {
  NodeId source;                         // where the bytes are
  Bytes bytes;                           // how many are to be placed
  std::optional<NodeId> initiator = {};  // whose CPUs will use them; nothing when unknown
};

// (machine, request) -> placement. Pure: the same answer for a machine that is here and for one
// that was loaded. Must not throw: an exception ends the program.
using PlacementPolicy = std::function<Result<Placement>(const Machine&, const PlacementRequest&)>;

namespace HEADRACE_API place {

// The fastest byte-addressable node near the initiator (by default the CPUs nearest to the source)
// that is faster than the source's node and has the room: by measured read bandwidth, else by rated
// bandwidth, else by kind (hbm > dram > cxl > storage); the first of these that is known
// of every node compared. Nodes within 10 % are equally fast: then the nearest. An equally fast
// node counts as faster when it is on the initiator's socket and the source is not. absent: no node
// is.
Result<Placement> nearest_fast(const Machine& machine, const PlacementRequest& request);

// Always this node.
PlacementPolicy always(NodeId node);
// Always this placement.
PlacementPolicy always(Placement placement);

}  // namespace HEADRACE_API place
}  // namespace HEADRACE_API headrace
