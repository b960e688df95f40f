// SPDX-License-Identifier: Apache-2.0
// Hot pages brought to the fast memory, and cold ones out, by the policy of PageTier: what share of
// accesses is slow then, and how many bytes were moved for it.
//
// A model: decisions are made by decide() itself, once a look; what it is told is not looked up but
// expected of the popularity of pages. What moving costs the server is not counted. Pure.
#pragma once

#include <functional>
#include <span>

#include "headrace/tier/page_tier.h"
#include "workload/kv/model/popularity.h"

namespace headrace::kv_bench {

struct PromotionOptions {
  double page_bytes = 4096;
  double slow_part = 0.5;  // of all pages, at first and, being the slow memory's, ever
  double look_seconds = 60;
  unsigned looks = 60;
  // As PageTier has it, but for the budget, which follows from slow_part.
  TierPolicy policy;
  // What is inserted between two looks lies where it was allocated (of Workload::latest).
  double insertions_per_operation = 0;
};

struct Promoted {
  double slow_share = 0;  // of accesses, after the last look
  double bytes = 0;       // moved to the fast memory
};

// `speed` gives operations per second at a slow share of accesses.
Promoted promote(std::span<const PageGroup> groups, const PromotionOptions& options,
                 const std::function<double(double)>& speed);

}  // namespace headrace::kv_bench
