// Where memory should live: nodes with weights, strict or preferred, and the page size; and the
// pure functions that choose it.
//
// A Placement is a wish; `allocate` (buffer.h) carries it out and `where` tells what came of it.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// The size of pages asked for. When huge pages are not to be had, the next smaller size is taken,
// and the buffer says so (Buffer::page_size).
enum class PageSize : std::uint8_t {
  base,         // 4 KiB
  transparent,  // 4 KiB, and the kernel is asked for transparent huge pages
  huge_2m,      // hugetlb, 2 MiB; else transparent
  huge_1g,      // hugetlb, 1 GiB; else 2 MiB; else transparent
};

std::string_view to_string(PageSize size);

struct NodeWeight {
  NodeId node;
  unsigned weight = 1;  // pages per turn
  friend bool operator==(const NodeWeight&, const NodeWeight&) = default;
};

struct Placement {
  // One node: bound to it. Several: pages in turn, `weight` at a time.
  std::vector<NodeWeight> nodes;
  // Instead of nodes: all nodes of this kind, nearest first; resolved by `resolve`.
  std::optional<NodeKind> kind = {};
  // strict: these nodes or exhausted. Otherwise the kernel may spill to others when they are full.
  bool strict = true;
  PageSize pages = PageSize::transparent;
  // Touch every page at once, in parallel, from CPUs near its node.
  bool touch = true;
  std::string reason;  // why a policy chose it; empty when the user did

  static Placement on(NodeId node);
  static Placement on(NodeKind kind);
  // Page by page in turn over the nodes.
  static Placement interleave(const std::vector<NodeId>& nodes);
  // Pages in turn by weight, {{n0, 3}, {n8, 1}}: three pages on n0, one on n8, and so on. Private
  // to the allocation; needs no root.
  static Placement weighted(std::vector<NodeWeight> nodes);
};

// The same placement with its kind replaced by the nodes of `machine` that are of it (for an
// initiator on `near`, nearest first) and all nodes checked to be memory. absent: no such node;
// unsupported: a node that is not memory; invalid: neither nodes nor a kind, or both, a weight of 0
// or a node twice.
Result<Placement> resolve(const Machine& machine, const Placement& placement,
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

// (machine, request) -> placement. Pure: the same answer in production, simulation and advice. Must
// not throw: an exception ends the program.
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

}  // namespace HEADRACE_API place
}  // namespace HEADRACE_API headrace
