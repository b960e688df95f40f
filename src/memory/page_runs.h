// SPDX-License-Identifier: Apache-2.0
// Which page of a buffer goes to which node: pure arithmetic, no system call.
//
// Pages are distributed over the placement's nodes in turn, `weight` units at a time. A unit is one
// page where that is affordable, else a power of two of pages: each run with its own policy is a
// separate mapping in the kernel (docs/design/placement-on-linux.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "headrace/placement.h"
#include "headrace/units.h"

namespace headrace {

// A contiguous part of a buffer on one node; `node` is an index into the placement's nodes.
struct PageRun {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::size_t node = 0;
  friend bool operator==(const PageRun&, const PageRun&) = default;
};

// Maximum runs per buffer. The kernel allows a process 65530 mappings by default (vm.max_map_count)
// and searches them at every fault; this limit leaves space for a hundred such buffers.
inline constexpr std::uint64_t kMaxRuns = 512;

// Bytes of one turn over all nodes: the sum of the weights times `unit`; saturates.
Bytes turn(std::span<const NodeWeight> nodes, Bytes unit);

// The smallest `page` * 2^n that cuts `mapped` bytes into at most `max_runs` runs. Requires: mapped
// > 0, page > 0, max_runs >= nodes.size() > 0, weights > 0.
Bytes choose_unit(Bytes mapped, Bytes page, std::span<const NodeWeight> nodes,
                  std::uint64_t max_runs = kMaxRuns);

// The runs of a buffer of `mapped` bytes, ascending, without gaps; the last may be short. After
// each whole turn every node has exactly its weight times `unit`. One node: one run.
std::vector<PageRun> cut_into_runs(Bytes mapped, Bytes unit, std::span<const NodeWeight> nodes);

// A part of a buffer that is distributed over one set of nodes, as indices into the placement's
// nodes. Spill nodes are numbered after them, and each is alone in its stage.
struct Stage {
  std::vector<std::size_t> nodes;
  Bytes bytes;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Splits a buffer into stages that fit, in the order of the buffer. Each stage uses the nodes with
// space for another turn of `unit` (a last single node: for any) until one is full. The rest goes
// to the spill nodes in their order. nullopt: it does not fit. `space`: free bytes per node;
// `other_space`: per spill node.
std::optional<std::vector<Stage>> split_by_space(Bytes mapped, Bytes unit,
                                                 std::span<const NodeWeight> nodes,
                                                 std::span<const Bytes> space,
                                                 std::span<const Bytes> other_space);

// Applies cut_into_runs to each stage.
std::vector<PageRun> cut_into_runs(std::span<const Stage> stages, Bytes unit,
                                   std::span<const NodeWeight> nodes);

// Bytes of the runs per node, indexed as the placement's `nodes`, of which there are `count`.
std::vector<Bytes> bytes_by_node(std::span<const PageRun> runs, std::size_t count);

// Maximum bytes per node when the kernel distributes units in turn by weight from any first node.
std::vector<Bytes> distributed_shares(Bytes mapped, Bytes unit, std::span<const NodeWeight> nodes);

// Whether all weights are 1; then the kernel's own interleaving serves, without runs.
bool plain_interleave(std::span<const NodeWeight> nodes);

// Whether the table of weights gives each node its own weight.
bool same_weights(std::span<const NodeWeight> nodes, std::span<const NodeWeight> table);

}  // namespace headrace
