// SPDX-License-Identifier: Apache-2.0
// The slow tier of a PageTier: swap, or slower nodes. Pages move while other threads use them, and
// keep their addresses. Thread-compatible.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/tier/page_tier.h"
#include "host/kernel.h"
#include "tier/source.h"

namespace headrace {

// All ranges are whole pages, as the source of hotness tracks whole pages.
class SlowMemory {
 public:
  virtual ~SlowMemory() = default;
  // Bytes of a range in fast and in slow memory; unmapped parts count in neither. Sets no heat.
  virtual Result<ChunkPlace> place_of(const TrackedRange& range) const = 0;
  // Moves the ranges in this order, as far as they can move; place_of() then shows which refused.
  virtual Status move(std::span<const TrackedRange> ranges, bool in) = 0;
  // How many more bytes the fast tier can take, in chunks of `chunk`; nullopt: the kernel makes
  // space for promoted pages.
  virtual std::optional<Bytes> room(Bytes chunk) const = 0;
  // Whether locked pages and pages without access rights move too.
  virtual bool moves_any() const = 0;
};

// Both functions first demote and promote a page of their own; on failure they return a one-line
// error. Requires: `kernel` outlives the result.
Result<std::unique_ptr<SlowMemory>> open_swap(Kernel& kernel);
// Why a page that was to go to swap stayed.
Unexpected no_swap();
// Pages on a node that is not in `fast` count as demoted. Requires: both lists non-empty, no node
// twice.
Result<std::unique_ptr<SlowMemory>> open_nodes(Kernel& kernel, std::vector<NodeId> fast,
                                               std::vector<NodeId> slow);

// As open_nodes(), without the trial: for another process's memory.
std::unique_ptr<SlowMemory> nodes_untried(Kernel& kernel, std::vector<NodeId> fast,
                                          std::vector<NodeId> slow);

}  // namespace headrace
