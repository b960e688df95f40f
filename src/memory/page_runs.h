// SPDX-License-Identifier: Apache-2.0
// Which page of a buffer goes to which node: pure arithmetic, no system call.
//
// A buffer's pages are dealt to the nodes of its placement in turn, `weight` units at a time. The
// unit is a page where that is affordable, else a power of two of pages: every run with a policy of
// its own is a mapping of its own in the kernel (docs/design/placement-on-linux.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "headrace/placement.h"
#include "headrace/units.h"

namespace headrace {

// A stretch of a buffer that goes to one node; `node` is an index into the placement's nodes.
struct PageRun {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::size_t node = 0;
  friend bool operator==(const PageRun&, const PageRun&) = default;
};

// Most runs one buffer is cut into. The kernel allows a process 65530 mappings by default
// (vm.max_map_count) and looks one up at every fault; this leaves room for a hundred such buffers.
inline constexpr std::uint64_t kMaxRuns = 512;

// The bytes of one turn over all nodes: the sum of the weights times `unit`; saturates.
Bytes turn(std::span<const NodeWeight> nodes, Bytes unit);

// The smallest `page` * 2^n with which `mapped` bytes are cut into at most `max_runs` runs.
// Requires: mapped > 0, page > 0, max_runs >= nodes.size() > 0, weights > 0.
Bytes choose_unit(Bytes mapped, Bytes page, std::span<const NodeWeight> nodes,
                  std::uint64_t max_runs = kMaxRuns);

// The runs of a buffer of `mapped` bytes, ascending, without gaps; the last one may be cut short.
// After each whole turn every node has got exactly its weight times `unit`. One node: one run.
std::vector<PageRun> cut_into_runs(Bytes mapped, Bytes unit, std::span<const NodeWeight> nodes);

// A part of a buffer that is dealt to the same nodes: indices into the placement's nodes. The nodes
// it spills to are numbered after those, and each of them is alone in its stage.
struct Stage {
  std::vector<std::size_t> nodes;
  Bytes bytes;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Stages that fit on their nodes, in the order of the buffer. Each is dealt to the nodes that have
// room for a turn of `unit` more (alone: for any), until one of them has none; when none has, to
// the others in their order. Nothing: it does not fit. `space`: what each node has free,
// `other_space` those it spills to.
std::optional<std::vector<Stage>> split_by_space(Bytes mapped, Bytes unit,
                                                 std::span<const NodeWeight> nodes,
                                                 std::span<const Bytes> space,
                                                 std::span<const Bytes> other_space);

// As cut_into_runs of each stage.
std::vector<PageRun> cut_into_runs(std::span<const Stage> stages, Bytes unit,
                                   std::span<const NodeWeight> nodes);

// The bytes of the runs by node. Index: as in the placement's `nodes`, of which there are `count`.
std::vector<Bytes> bytes_by_node(std::span<const PageRun> runs, std::size_t count);

// The most bytes each node gets when the kernel deals units in turn by weight, beginning anywhere.
std::vector<Bytes> dealt_shares(Bytes mapped, Bytes unit, std::span<const NodeWeight> nodes);

// Whether the weights are all 1: then the kernel's own interleaving deals the pages, without runs.
bool plain_interleave(std::span<const NodeWeight> nodes);

// Whether a table of weights gives each of the nodes its own.
bool same_weights(std::span<const NodeWeight> nodes, std::span<const NodeWeight> table);

}  // namespace headrace
