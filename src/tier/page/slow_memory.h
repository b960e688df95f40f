// SPDX-License-Identifier: Apache-2.0
// Where the cold of a PageTier goes, and comes back from: swap, or slower nodes. Pages go as they
// are, at their addresses, while other threads use them. Thread-compatible.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/tier/page_tier.h"
#include "tier/kernel.h"
#include "tier/source.h"

namespace headrace {

// The source of hotness tracks memory in whole pages, and so all ranges here are of whole pages.
class SlowMemory {
 public:
  virtual ~SlowMemory() = default;
  // How much of a range is where; it has no heat. What was unmapped is nowhere.
  virtual Result<ChunkPlace> place_of(const TrackedRange& range) const = 0;
  // Moves of each range what it can, in this order: what refuses shows in place_of afterwards.
  virtual Status move(std::span<const TrackedRange> ranges, bool in) = 0;
  // How many bytes more the fast tier has room for, in chunks of so many; nothing where the kernel
  // makes room for what comes in.
  virtual std::optional<Bytes> room(Bytes chunk) const = 0;
  // Whether pages move that are locked, or that nobody may access.
  virtual bool moves_any() const = 0;
};

// Both try with a page of their own that it goes out and comes in, and say in one line why not.
// `kernel` must outlive them.
Result<std::unique_ptr<SlowMemory>> open_swap(Kernel& kernel);
// Pages on any node that is not fast are out. Requires: nodes in both, no node twice.
Result<std::unique_ptr<SlowMemory>> open_nodes(Kernel& kernel, std::vector<NodeId> fast,
                                               std::vector<NodeId> slow);

// As open_nodes(), untried: of memory that is another process'.
std::unique_ptr<SlowMemory> nodes_untried(Kernel& kernel, std::vector<NodeId> fast,
                                          std::vector<NodeId> slow);

}  // namespace headrace
