// SPDX-License-Identifier: Apache-2.0
// Model of promotion and demotion by PageTier's policy: the share of slow accesses afterwards, and
// the bytes moved. Pure.
//
// Decisions are made by decide() itself, once per look; its input is the expected popularity of
// pages. The cost of moves to the server is not counted.
#pragma once

#include <functional>
#include <span>

#include "benchmarks/keyvalue/model/popularity.h"
#include "headrace/tier/page_tier.h"

namespace headrace::kv_bench {

struct PromotionOptions {
  double page_bytes = 4096;
  double slow_part =
      0.5;  // share of all pages, at first and always, as it is the slow memory's size
  double look_seconds = 60;
  unsigned looks = 60;
  // As in PageTier, except the budget, which follows from slow_part.
  TierPolicy policy;
  // Records inserted between two looks stay where they were allocated (for Workload::latest).
  double insertions_per_operation = 0;
};

struct Promoted {
  double slow_share = 0;  // of accesses, after the last look
  double bytes = 0;       // moved to the fast memory
};

// `speed`: operations per second as a function of the slow share of accesses.
Promoted promote(std::span<const PageGroup> groups, const PromotionOptions& options,
                 const std::function<double(double)>& speed);

}  // namespace headrace::kv_bench
